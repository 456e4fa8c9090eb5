"""A forked program cannot be told from a fresh one by what it does, prints and leaves (harness.md, "Speed")."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.model import Command, ProcessResult
from harness.spawn import Spawner, open_spawner
from harness.spawn.fork import WARM_MAX, ForkSpawner

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork needs Linux")

PROGRAMS = {
    "ends": "",
    "prints": "print('out'); import sys; print('err', file=sys.stderr)",
    "exits": "import sys; sys.exit(3)",
    "exits-none": "import sys; sys.exit()",
    "exits-true": "import sys; sys.exit(True)",
    "exits-minus-two": "import sys; sys.exit(-2)",
    "exits-256": "import sys; sys.exit(256)",
    "exits-2-40": "import sys; sys.exit(2**40 + 7)",
    "exits-text": "import sys; print('out'); sys.exit('no luck: \u00e9')",
    "exits-hard": "import os; print('lost?'); os._exit(7)",
    "raises": "def f():\n    raise ValueError('no luck')\nf()",
    "raises-from": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e",
    "raises-in-import": "import broken",
    "raises-late": "import atexit\natexit.register(print, 'finally')\nraise OSError(28, 'full')",
    "raises-group": "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])",
    "no-module": "import no_such_module",
    "no-member": "from json import no_such_member",
    "no-syntax": "def f(:",
    "interrupted": "import sys\ntry:\n    raise KeyboardInterrupt\nfinally:\n    print('cleaned')",
    "sigint": "import os, signal; os.kill(os.getpid(), signal.SIGINT); signal.pause()",
    "sigterm": "import os, signal; print('lost'); os.kill(os.getpid(), signal.SIGTERM); signal.pause()",
    "sigkill": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "aborts": "import resource, os; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()",
    "segfaults": "import resource, ctypes; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); ctypes.string_at(0)",
    "recursion": "def f(): f()\nf()",
    "excepthook": "import sys\nsys.excepthook = lambda *e: print('hook', e[0].__name__)\n1 / 0",
    "excepthook-breaks": "import sys\nsys.excepthook = lambda: 0\n1 / 0",
    "exit-functions": "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')",
    "exit-function-raises": "import atexit\natexit.register(lambda: 1 / 0)\natexit.register(print, 'second')",
    "unclosed-file": "f = open('left.txt', 'w'); f.write('kept')",
    "unclosed-in-module": "import holder; holder.file = open('left.txt', 'w'); holder.file.write('kept')",
    "unclosed-in-cycle": "class A: pass\na = A(); a.a = a; a.f = open('left.txt', 'w'); a.f.write('kept'); del a",
    "finalizer": "class A:\n    def __del__(self): print('gone')\na = A()",
    "thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print('joined'))).start()",
    "daemon-thread": "import threading, signal\nthreading.Thread(target=signal.sigwait, args=([10],), daemon=True).start()",
    "executor": "from concurrent.futures import ThreadPoolExecutor\nx = ThreadPoolExecutor(2)\nx.submit(print, 'done')",
    "fork": "import os\nif os.fork() == 0:\n    print('child', flush=True); raise SystemExit(9)\nprint(os.wait()[1])",
    "subprocess": "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'exit(4)']).returncode)",
    "multiprocessing": "import multiprocessing\nif __name__ == '__main__':\n"
    "    p = multiprocessing.Process(target=print, args=('in it',)); p.start(); p.join(); print(p.exitcode)",
    "stdin": "import sys, os; print(repr(sys.stdin.read()), os.isatty(0), os.isatty(1), sys.stdout.line_buffering)",
    "stdout-closed": "import sys; sys.stdout.close()",
    "stdout-full": "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); print('x')",
    "signals": "import signal\nfor n in sorted(signal.valid_signals()): print(n, signal.getsignal(n))\n"
    "print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))",
    "session": "import os; print(os.getsid(0) == os.getpgid(0) == os.getpid(), os.umask(0), os.getcwd())",
    "descriptors": "import os; print(len(os.listdir('/proc/self/fd')))",
    "environment": "import os\nfor k in sorted(os.environ):\n"
    "    if k != 'PYTEST_CURRENT_TEST': print(k, os.environ[k])",
    "gc": "import gc; print(gc.isenabled(), gc.get_threshold())",
    "main": "import sys\nm = sys.modules['__main__']\nprint(__name__, m.__dict__ is globals(), __file__, __package__)\n"
    "print(__spec__ and (__spec__.name, __spec__.parent), type(__loader__).__name__, __doc__, __builtins__)",
    "names": "print(sorted(set(globals()) - {'__annotations__'}))",
    "docstring": "'''What it is'''\nprint(__doc__)",
    "future": "from __future__ import annotations\ndef f(a: no_such_name): pass\nprint(f.__annotations__)",
    "not-future": "def f(a: int): pass\nprint(f.__annotations__)",
    "annotated": "x: int = 1\nprint(__annotations__)",
    "arguments": "import sys; print(sys.argv, sys.orig_argv, sys.executable, sys.flags)",
    "path": "import sys; print(sys.path)",
    "harness": "import sys; print([name for name in sys.modules if name.startswith('harness')])",
    "warnings": "import warnings; warnings.warn('careful')",
    "logging": "import logging; logging.warning('careful')",
    "pickle": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
    "traced": "import sys; print(sys.gettrace(), sys.getprofile(), sys.getrecursionlimit())",
}


@pytest.fixture(scope="module")
def fresh(project: Path) -> Iterator[Spawner]:
    with open_spawner("exec", project=project) as spawner:
        yield spawner


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("project")
    (project / "broken.py").write_text("import holder\nraise RuntimeError('broken')\n")
    (project / "holder.py").write_text("file = None\n")
    for name, source in PROGRAMS.items():
        (project / f"{module_of(name)}.py").write_text(source)
        package = project / f"{module_of(name)}_package"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(source)
    return project


def module_of(name: str) -> str:
    return name.replace("-", "_") + "_program"


def observe(result: ProcessResult, cwd: Path) -> dict[str, object]:
    """What can be seen of a process, without what differs between two fresh ones too."""
    return {
        "exit_code": result.exit_code,
        "died_by": result.died_by,
        "stdout": normalize(result.stdout),
        "stderr": normalize(result.stderr),
        "files": {path.name: path.read_text() for path in sorted(cwd.iterdir())},
    }


def normalize(output: bytes) -> str:
    text = re.sub(r'[ |]*File "<frozen runpy>".*\n', "", output.decode())
    text = re.sub(r"0x[0-9a-f]+|KILLPOINTS_(CONTROL|RESUME) \d+", "...", text)
    return re.sub(r"\[Previous line repeated \d+ more times\]", "...", text)


@pytest.mark.parametrize("form", ["module", "package", "script"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_forked_and_fresh_agree(fresh: Spawner, project: Path, tmp_path: Path, name: str, form: str) -> None:
    module = module_of(name)
    command = {
        "module": ("python", "-m", module, "an argument"),
        "package": ("python", "-m", f"{module}_package", "an argument"),
        "script": ("python", str(project / f"{module}.py"), "an argument"),
    }[form]
    told: list[dict[str, object]] = []
    with open_spawner("fork", project=project) as forked:
        for spawner in (forked, fresh):
            cwd = tmp_path / str(len(told))
            cwd.mkdir()
            result = spawner.start(Command(command, cwd=str(cwd), env={"EXTRA": "\u00e9"}, timeout_s=60)).wait()
            told.append(observe(result, cwd))
        assert isinstance(forked, ForkSpawner)
        if not name.startswith(("no-", "raises-in-import")):
            assert forked.cold == {}, "it was not forked, so nothing was compared"
    for key, value in told[1].items():
        assert str(told[0][key]).replace(str(tmp_path / "0"), str(tmp_path / "1")) == str(value), key


def test_imports_are_done_before_the_fork_and_the_program_after(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import os\nPID = os.getpid()\n")
    (tmp_path / "extra.py").write_text("import os\nPID = os.getpid()\n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    (tmp_path / "pack" / "part.py").write_text("import os\nPID = os.getpid()\n")
    (tmp_path / "pack" / "__main__.py").write_text(
        "import os\nfrom . import part\nfrom helper import PID as HELPER\n"
        "def late():\n    import extra\n    return extra.PID\n"
        "open('ran.txt', 'a').write('once\\n')\nprint(os.getpid(), part.PID, HELPER, late())\n"
    )
    command = Command(("python", "-m", "pack"), cwd=str(tmp_path))
    with open_spawner("fork", project=tmp_path, warm=["extra"]) as spawner:
        told = [tuple(map(int, spawner.start(command).wait().stdout.split())) for _ in range(3)]
    assert len({own for own, *_ in told}) == 3
    servers = {pid for _, *pids in told for pid in pids}
    assert len(servers) == 1 and servers.isdisjoint(own for own, *_ in told)
    assert (tmp_path / "ran.txt").read_text() == "once\n" * 3


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('broken')", "RuntimeError: broken"),
        ("raise SystemExit(5)", "SystemExit: 5"),
        ("import os; os._exit(5)", "exit status 5"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9"),
        ("import signal, threading; threading.Thread(target=signal.pause, daemon=True).start()", "start 1 thread"),
        ("import signal; signal.sigwait([signal.SIGUSR1])", "longer than 1 s"),
    ],
)
def test_a_program_whose_imports_go_wrong_is_cold(tmp_path: Path, source: str, reason: str) -> None:
    """It does so in a process of its own, and other programs are forked all the same."""
    (tmp_path / "bad.py").write_text(source)
    (tmp_path / "uses_bad.py").write_text("import bad\nprint('alive')\n")
    (tmp_path / "good.py").write_text("print('good')\n")
    with open_spawner("fork", project=tmp_path) as forked, open_spawner("exec", project=tmp_path) as fresh:
        assert isinstance(forked, ForkSpawner)
        results = [
            spawner.start(
                Command(("python", "-m", "uses_bad"), cwd=str(tmp_path), timeout_s=1 if "sigwait" in source else 60)
            ).wait()
            for spawner in (forked, forked, fresh)
        ]
        assert len({(r.exit_code, r.signal_number, r.timed_out, r.stdout, r.stderr) for r in results}) == 1
        assert forked.cold.keys() == {"uses_bad"} and reason in forked.cold["uses_bad"]
        assert forked.start(Command(("python", "-m", "good"), cwd=str(tmp_path))).wait().stdout == b"good\n"


def test_variables_that_an_interpreter_reads_at_its_start_are_heard(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("import sys; print(sys.flags.hash_randomization, sys.flags.utf8_mode)")
    env = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    with open_spawner("fork", project=tmp_path) as spawner:
        assert spawner.start(Command(("python", "-m", "p"), cwd=str(tmp_path), env=env)).wait().stdout == b"0 1\n"


def test_random_numbers_differ_between_forks(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("import random, uuid; print(random.random(), uuid.uuid4())")
    with open_spawner("fork", project=tmp_path) as spawner:
        told = {spawner.start(Command(("python", "-m", "p"), cwd=str(tmp_path))).wait().stdout for _ in range(5)}
    assert len(told) == 5


def test_programs_beyond_the_limit_are_started_afresh(tmp_path: Path) -> None:
    for number in range(WARM_MAX + 2):
        (tmp_path / f"p{number}.py").write_text(f"print({number})")
    with open_spawner("fork", project=tmp_path) as spawner:
        for number in range(WARM_MAX + 2):
            result = spawner.start(Command(("python", "-m", f"p{number}"), cwd=str(tmp_path))).wait()
            assert result.stdout == b"%d\n" % number
        assert isinstance(spawner, ForkSpawner) and len(spawner.cold) == 2


def test_a_project_may_have_a_package_named_harness(tmp_path: Path) -> None:
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").write_text("mine = True\n")
    (tmp_path / "p.py").write_text("import harness; print(harness.mine)")
    with open_spawner("fork", project=tmp_path) as spawner:
        assert spawner.start(Command(("python", "-m", "p"), cwd=str(tmp_path))).wait().stdout == b"True\n"
        assert isinstance(spawner, ForkSpawner) and spawner.cold == {}
