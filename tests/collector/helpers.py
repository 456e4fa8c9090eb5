"""The collector's command on two roots of its own: in this process where nothing dies, as a real process where it does."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

import killpoints
from harness.judge.tree import Tree, observe_tree, restore_tree
from product.collector.cli import main
from tests.collector.evidence_samples import make_card, make_evidence, make_observation, to_bytes
from tests.scenarios.collector import CollectorScenario, read_manifest
from tests.scenarios.collector_tamper import LOCK as LOCK
from tests.scenarios.collector_tamper import PENDING as PENDING
from tests.scenarios.collector_tamper import QUARANTINE as QUARANTINE
from tests.scenarios.collector_tamper import canonical as canonical
from tests.scenarios.collector_tamper import own_stamp as own_stamp
from tests.scenarios.collector_tamper import set_holder as set_holder

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60

needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and exchanges names")
needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals, links and inherited pipes")


@dataclass(frozen=True)
class Ran:
    """What one run of the command said. ``answer`` is the one JSON object of stdout, empty where there is none."""

    status: int
    stdout: str
    words: str
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> str | None:
        return self.answer.get("code")

    @property
    def rows(self) -> list[str]:
        return list(self.answer.get("rows") or [])

    def require_done(self) -> dict[str, Any]:
        assert self.status == 0 and self.answer.get("ok") is True, (self.answer, self.words)
        return self.answer

    def require_refused(self, code: str, status: int) -> dict[str, Any]:
        """It said this code and ended with this status; it wrote no traceback."""
        assert (self.code, self.status) == (code, status), (self.answer, self.words)
        assert self.answer["ok"] is False and code in self.words and "Traceback" not in self.words
        return self.answer


def ran(status: int, stdout: str, words: str) -> Ran:
    lines = stdout.splitlines()
    answer = json.loads(lines[0]) if len(lines) == 1 and lines[0].startswith("{") else {}
    return Ran(status, stdout, words, answer)


class Collector:
    """Two roots below ``home``, and the command on them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.state, self.archive = home / "state", home / "archive"
        for root in (self.state, self.archive):
            root.mkdir(parents=True, exist_ok=True)

    # ------------------------------------------------------------------------------------------- running it

    def call(self, *arguments: str) -> Ran:
        """In this process."""
        stdout, words = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(words):
            try:
                status = main([*arguments, *self.flags])
            except SystemExit as error:
                status = int(error.code or 0)
        return ran(status, stdout.getvalue(), words.getvalue())

    def run(self, *arguments: str, plan: str = "", patch: str = "") -> Ran:
        """As a real process, to its end. ``patch``: statements that are run in it before the command."""
        done = subprocess.run(
            argv_of(arguments, patch), cwd=REPOSITORY, env=self.environment(plan), capture_output=True, text=True,
            timeout=TIMEOUT_S,
        )  # fmt: skip
        return ran(done.returncode, done.stdout, done.stderr)

    def kill(self, point: str, *arguments: str) -> int:
        """As a real process that must die by its own SIGKILL at the first hit of ``point``. Its pid."""
        with self.started(*arguments, plan=f"{point}#1=kill") as process:
            assert process.read_record() == f"kill\t{point}\t1\t{process.pid}"
            assert process.end().status == -signal.SIGKILL
            return process.pid

    @contextmanager
    def started(self, *arguments: str, plan: str = "", patch: str = "") -> Iterator[Process]:
        """A real process that does not outlive the test."""
        process = Process(argv_of(arguments, patch), self.environment(plan))
        try:
            yield process
        finally:
            process.close()

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--state-dir", str(self.state), "--archive-dir", str(self.archive))

    def environment(self, plan: str = "") -> dict[str, str]:
        own = {"COLLECTOR_STATE_DIR": str(self.state), "COLLECTOR_ARCHIVE_DIR": str(self.archive), "KILLPOINTS": plan}
        return os.environ | own

    # ------------------------------------------------------------------------------------------- its files

    def evidence(self, run_id: str = "first", posts: Sequence[int] = (1, 2), **changes: Any) -> str:
        """Evidence of a run that showed these posts, in a file beside the roots. Its path."""
        path = self.home / f"{run_id}.evidence.json"
        path.write_bytes(evidence_of(run_id, posts, **changes))
        return str(path)

    def commit(self, run_id: str = "first", posts: Sequence[int] = (1, 2), **changes: Any) -> dict[str, Any]:
        """Commit such a run in this process; it must be done."""
        return self.call("commit", "--evidence", self.evidence(run_id, posts, **changes)).require_done()

    def tree(self) -> Tree:
        return observe_tree(self.home)

    def posts(self) -> list[int]:
        """The dynamic ids in the archive, in order; the chain is proven."""
        return [int(line["identifiers"]["dynamic_id"]) for line in read_manifest(self.tree(), "cards")]

    def run_ids(self) -> list[str]:
        return [str(line["run_id"]) for line in read_manifest(self.tree(), "runs")]

    @property
    def pending(self) -> dict[str, Any]:
        value = json.loads((self.home / PENDING).read_bytes())
        assert isinstance(value, dict)
        return value

    def write_pending(self, value: object) -> None:
        (self.home / PENDING).write_bytes(canonical(value))

    @property
    def lock(self) -> Path:
        return self.home / LOCK

    def settled(self) -> bool:
        """Nothing is in flight."""
        left = {path for path in self.tree() if path in (LOCK, PENDING) or path.endswith(".tmp")}
        return not left and not any(self.archive.joinpath(".candidates").iterdir())


class Process:
    """One real process of the command with its control pipes."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        self._control, control = os.pipe()
        resume, self._resume = os.pipe()
        own = {"KILLPOINTS_CONTROL": str(control), "KILLPOINTS_RESUME": str(resume)}
        self._process = subprocess.Popen(
            argv, cwd=REPOSITORY, env=environment | own, pass_fds=(control, resume), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self._ended: Ran | None = None
        os.close(control)
        os.close(resume)

    def read_record(self) -> str:
        """The next record, empty when the process has ended without one."""
        ready, _, _ = select.select([self._control], [], [], TIMEOUT_S)
        assert ready, "neither a record nor an end"
        return os.read(self._control, 4096).decode().rstrip("\n")

    def await_pause(self, point: str) -> None:
        """Until it is held at the first hit of ``point``."""
        assert self.read_record() == f"pause\t{point}\t1\t{self.pid}"

    def read_word(self) -> str:
        """The next line of stderr."""
        assert self._process.stderr is not None
        return self._process.stderr.readline()

    def resume(self) -> None:
        os.write(self._resume, b"\n")

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def await_state(self, options: int) -> None:
        """Until it is in that state (os.WEXITED, os.WSTOPPED), without reaping it."""
        assert os.waitid(os.P_PID, self.pid, options | os.WNOWAIT) is not None

    def end(self) -> Ran:
        """Wait for its end; reaps it."""
        if self._ended is None:
            stdout, words = self._process.communicate(timeout=TIMEOUT_S)
            self._ended = ran(self._process.returncode, stdout, words)
        return self._ended

    def close(self) -> None:
        if self._ended is None and self._process.poll() is None:
            self._process.kill()
            self.send(getattr(signal, "SIGCONT", 0))
        self.end()
        os.close(self._control)
        os.close(self._resume)


def argv_of(arguments: Sequence[str], patch: str) -> list[str]:
    if not patch:
        return [sys.executable, "-m", "product.collector", *arguments]
    program = f"import sys\nfrom product.collector.cli import main\n{patch}\nsys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", program, *arguments]


@contextmanager
def armed(plan: str) -> Iterator[None]:
    """That plan in force in this process: for errors, of which no process dies."""
    killpoints.arm(plan)
    try:
        yield
    finally:
        killpoints.disarm()


def evidence_of(run_id: str, posts: Sequence[int] = (1, 2), *, hour: str = "2026-11-30T12", **changes: Any) -> bytes:
    """Complete coverage to the end of the feed in that UTC hour; ``changes`` replace top-level keys."""
    observation = make_observation([make_card(place, dynamic=str(post)) for place, post in enumerate(posts)])
    observation["observed_at"] = f"{hour}:10:00Z"
    own = {"run_id": run_id, "started_at": f"{hour}:05:00Z", "ended_at": f"{hour}:59:59Z", "stop_reason": "end_of_feed"}
    return to_bytes(make_evidence(observation) | own | changes)


def differences(before: Tree, after: Tree) -> list[tuple[str, str]]:
    """What changed in the roots, but for what even a refusal may touch: the state lock's own files, the derived index."""
    exempt = CollectorScenario.bookkeeping
    found = [change for change in before.differences(after) if change[0].startswith(("state", "archive"))]
    return [(path, how) for path, how in found if not any(fnmatchcase(path, glob) for glob in exempt)]


@contextmanager
def nothing_changes(collector: Collector) -> Iterator[None]:
    before = collector.tree()
    yield
    assert differences(before, collector.tree()) == []


_deaths: dict[tuple[str, bool], tuple[Tree, int]] = {}


def die_at(collector: Collector, point: str, *, used: bool = False) -> None:
    """What a commit of the posts 1 and 2 leaves that died at ``point``; ``used``: the archive had post 9 before.

    Each death is died once, by a real process, and copied from then on, as long as nobody has its number.
    """
    tree, pid = _deaths.get((point, used), (None, 0))
    if tree is None or os.path.exists(f"/proc/{pid}"):
        if used:
            collector.commit("zero", [9], hour="2026-11-30T10")
        pid = collector.kill(point, "commit", "--evidence", collector.evidence())
        _deaths[point, used] = collector.tree(), pid
        return
    for root in (collector.state, collector.archive):
        root.rmdir()
    restore_tree(tree, collector.home)


def stamp_of(pid: int, offset: int = 0) -> str:
    """The creation stamp of a process that lives; with an offset, of one that had its number before."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    *words, _ = own_stamp().split(":")
    return ":".join([*words, str(ticks + offset)])


def copy_of(tree: Tree, home: Path) -> Collector:
    """A collector whose roots are a copy of the tree."""
    home.mkdir()
    restore_tree(tree, home)
    return Collector(home)


def alter(value: Any, pointer: str, change: Callable[[Any], Any]) -> Any:
    """A deep copy of the JSON value in which the place at ``pointer`` is changed."""
    copy = json.loads(json.dumps(value))
    *path, last = pointer.split("/")[1:]
    node = copy
    for token in path:
        node = node[int(token)] if isinstance(node, list) else node[token]
    key: Any = int(last) if isinstance(node, list) else last
    node[key] = change(node[key])
    return copy
