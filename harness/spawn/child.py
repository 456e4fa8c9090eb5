"""A forked child on its way to being the program: what is the server's is put away, then the program takes over.

Signal deaths are real, exit statuses and tracebacks are Python's own. At the end of a forked program its threads are
joined, exit functions run, its main module is cleared and open files are flushed; objects that other modules still
hold are not finalized.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from harness.spawn import measure
from harness.spawn.environment import NOT_STARTED, arming_environment, refusal
from harness.spawn.program import Loaded

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SIGKILL = int(getattr(signal, "SIGKILL", 9))
_FLUSH_FAILED = 120  # as Python says it
_BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)

_prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None


def become_subreaper() -> None:
    """Orphaned descendants become children of this process. Raises OSError."""
    assert _prctl is not None
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def become(request: tuple[Any, ...], fds: Sequence[int], server_pid: int, loaded: Loaded | None) -> NoReturn:
    """In the forked child: become the program of ``request`` (argv, cwd, env, plan).

    ``fds``: stdout, stderr, control, resume. ``loaded`` None: start it afresh.
    """
    argv, cwd, env, plan = request
    gc.freeze()  # what the server made since it was warm is not this process's to look at, either
    try:
        _settle(cwd, env, fds, server_pid)
        arming = arming_environment(plan, fds[2], fds[3])
        if loaded is None:
            os.environ.update(arming)
            _execute(argv)
        if measure.VARIABLE in os.environ:
            arming |= measure.begin(os.environ[measure.VARIABLE])
    except (OSError, ValueError, IndexError) as error:  # not found; a NUL byte in an argument; no argument at all
        status, message = refusal(" ".join(argv[:1]), error)
        os.write(2, message)
        os._exit(status)
    _run(loaded, argv, arming)


def _settle(cwd: str, env: dict[str, str], fds: Sequence[int], server_pid: int) -> None:
    stdout, stderr, control, resume = fds
    os.setsid()
    assert _prctl is not None
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != server_pid:  # it died before it could have told us
        os._exit(NOT_STARTED)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    os.set_inheritable(control, True)
    os.set_inheritable(resume, True)
    for name in env:
        os.environ[name] = env[name]
    os.chdir(cwd)


def _execute(argv: Sequence[str]) -> NoReturn:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores these two; a program starts with neither ignored
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    program = sys.executable if argv[0] == "python" else argv[0]
    os.execvp(program, [program, *argv[1:]])


def _run(loaded: Loaded, argv: Sequence[str], arming: dict[str, str]) -> NoReturn:
    main = ModuleType("__main__")
    main.__dict__.update(loaded.attributes, __builtins__=builtins)
    sys.modules["__main__"] = main
    sys.argv = [loaded.attributes["__file__"], *argv[3:]] if argv[1] == "-m" else [*argv[1:]]
    sys.orig_argv = [sys.executable, *argv[1:]]
    if argv[1] == "-m" and not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    hook = sys.modules.get("killpoints.hook")
    if hook is not None:
        hook.arm_from_environment(arming)
    else:  # it arms itself when the program imports it
        os.environ.update(arming)
    status = _execute_code(loaded.code, main.__dict__)
    if not _finish(main):
        status = _FLUSH_FAILED
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


def _execute_code(code: Any, namespace: dict[str, Any]) -> int:
    try:
        exec(code, namespace)
        return 0
    except BaseException as raised:
        error = raised
    if isinstance(error, SystemExit):  # from here on, as in Python, no exception is being handled
        return _exit_status(error)
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next  # without this frame
    _flush(sys.stdout)
    _show(error)
    return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1


def _show(error: BaseException) -> None:
    try:
        sys.excepthook(type(error), error, error.__traceback__)
        return
    except BaseException as raised:
        broken = raised
    traceback = broken.__traceback__.tb_next if broken.__traceback__ is not None else None
    print("Error in sys.excepthook:", file=sys.stderr)
    sys.__excepthook__(type(broken), broken.with_traceback(traceback), traceback)
    print("\nOriginal exception was:", file=sys.stderr)
    sys.__excepthook__(type(error), error, error.__traceback__)


def _exit_status(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF if -(2**63) <= error.code < 2**63 else 0xFF
    _flush(sys.stdout)
    print(error.code, file=sys.stderr, flush=True)
    return 1


def _finish(main: ModuleType) -> bool:
    """What Python does when it ends, as far as the disk and the exit status show it. False: stdout took no flush."""
    if threading.active_count() > 1 or threading._threading_atexits:  # type: ignore[attr-defined]
        threading._shutdown()  # type: ignore[attr-defined]  # joins threads, stops executors
    atexit._run_exitfuncs()
    flushed = _flush(sys.stdout)
    if threading.active_count() == 1:  # a daemon thread would miss its globals
        main.__dict__.clear()
        gc.collect()
        files = [file for file in gc.get_objects() if type(file) in _BUFFERED]  # not the server's, which are frozen
        for kind in _BUFFERED:
            for file in files:
                if type(file) is kind and not file.closed:
                    _flush(file)
    _flush(sys.stdout)
    _flush(sys.stderr)
    return flushed


def _flush(file: Any) -> bool:
    try:
        if file is not None and not file.closed:
            file.flush()
    except Exception:
        return False
    return True
