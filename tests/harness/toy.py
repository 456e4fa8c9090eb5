"""A whole little project for the harness's own tests: a program with kill points, its judges, its matrix.yaml.

The program is right, or wrong in exactly the way that ``TOY`` in its environment says; every way is a scenario.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

POINTS = """
from killpoints import declare

PENDING = declare("toy.pending", "the record is in the pending file, not in the log", "toy 1")
APPENDED = declare("toy.appended", "the record is in the log, the pending file is still there", "toy 2")
CLEARED = declare("toy.cleared", "the pending file is gone", "toy 3")
REDONE = declare("toy.redone", "a recovery has appended the pending record", "toy 4")
"""

PROGRAM = '''
"""commit RECORD...: append each to the log, by way of a pending file. recover: finish what is pending."""

import errno, fcntl, gc, json, os, signal, subprocess, sys
from pathlib import Path

import killpoints.actions
from killpoints import attempt, reach
from toy_points import APPENDED, CLEARED, PENDING, REDONE

WRONG, HOME = os.environ.get("TOY", ""), Path(os.environ["TOY_HOME"])
LOG, NEXT, TRACE = HOME / "log", HOME / "next", HOME / "trace"


def records():
    return LOG.read_text().splitlines()


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def commit(new):
    rows = recover()
    for record in new:
        if record not in records():
            NEXT.write_text(record)
            reach(PENDING)
            attempt(APPENDED, append, LOG, record + "\\n")
            NEXT.unlink()
            reach(CLEARED)
    return {"ok": True, "rows": rows, "appended": new}


def recover():
    if not NEXT.exists():
        return []
    record, rows = NEXT.read_text(), ["R2"]
    if WRONG == "rewinds" and record in records():  # for a moment it is as if it had never been appended
        attempt(REDONE, LOG.write_text, LOG.read_text().replace(record + "\\n", ""))
        append(LOG, record + "\\n")
    again = WRONG == "second-time" and TRACE.exists()  # a mistake that only a second crash shows
    if WRONG == "second-time":
        TRACE.touch()
    if record not in records() or again or WRONG == "duplicates":
        rows = ["R1"]
        if WRONG != "loses":
            append(LOG, record + "\\n")
    reach(REDONE)
    NEXT.unlink()
    TRACE.unlink(missing_ok=True)
    return rows


def finish():
    pending = [NEXT.read_text()] if NEXT.exists() else []
    match WRONG:
        case "rewrites":
            LOG.write_text(LOG.read_text().replace("a", "A"))
        case "overwrites":
            (HOME / "notes").write_text("mine now")
        case "restless" | "refuses":
            append(HOME / "journal", "recovered\\n")
        case "residue":
            (HOME / "next.tmp").write_text("left")
        case "leaves-a-pipe" if not (HOME / "pipe").exists():
            os.mkfifo(HOME / "pipe")
        case "recovery-hangs":
            signal.pause()
        case "confused":
            return {"ok": True, "rows": ["R9", *recover()], "appended": pending}
    if WRONG in ("never-ends", "refuses"):
        return {"ok": False, "code": "E_NO"}
    if WRONG == "busy":
        return {"ok": False, "code": "BUSY"}
    return {"ok": True, "rows": recover(), "appended": pending}


def be_wrong_from_the_start():
    match WRONG:
        case "hangs":
            print("here", flush=True)
            signal.pause()
        case "raises":
            raise ValueError("no luck")
        case "exits":
            sys.exit(1)
        case "imports":
            import no_such_module
        case "shot":
            subprocess.run(["kill", "-9", str(os.getpid())])
        case "child-dies" if os.fork():
            os.wait()  # it died at the point, not this one
            os.kill(os.getpid(), signal.SIGKILL)
        case "server-shot":
            os.kill(os.getppid(), signal.SIGKILL)
            signal.pause()
        case "grandchild":
            subprocess.Popen(["sleep", "300"])
        case "kill-does-nothing":
            killpoints.actions._end_self = lambda number: None
        case "kill-without-record":
            killpoints.actions.Armed._record = lambda *arguments: None
        case "kill-is-another-signal":
            killpoints.actions._end_self = lambda number: os.kill(os.getpid(), signal.SIGTERM)
        case "tells-its-pid":
            (HOME / "pid").write_text(str(os.getpid()))
        case "waits" if not (HOME / "pid").exists():
            (HOME / "pid").touch()
            Path("ready").write_text(str(os.getpid()))  # two pipes: until somebody listens, until somebody lets it go on
            Path("go").read_bytes()


def do(what, arguments):
    with (HOME / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if WRONG != "intrudes":
                return {"ok": False, "code": "BUSY"}
            append(LOG, "intruder\\n")
        try:
            return commit(arguments) if what == "commit" else finish()
        except OSError as error:
            return {"ok": False, "code": errno.errorcode[error.errno]}


if __name__ == "__main__":
    if sys.argv[1] == "commit":
        be_wrong_from_the_start()
    answer = do(sys.argv[1], sys.argv[2:]) | {"warm": gc.get_freeze_count() > 0}  # forked from a server
    print(json.dumps(answer), flush=True)
    sys.exit(0 if answer["ok"] else 75 if answer["code"] == "BUSY" and WRONG != "busy" else 1)
'''

JUDGES = """
import os
import signal
import sys

from harness.judge.scenario import Afterwards, Judgement, Scenario


class Toy(Scenario):
    append_only = ("log",)
    foreign = ("notes",)
    allowed = ("log", "lock", "pid", "stranger", "journal")
    busy_codes = frozenset({"BUSY"})

    def set_up(self, sandbox):
        (sandbox / "log").write_text("a\\n")
        (sandbox / "notes").write_text("somebody else's")
        (sandbox / "lock").touch()

    def tamper(self, name, sandbox):
        if name == "shoot":
            os.kill(int((sandbox / "pid").read_text()), signal.SIGKILL)
            return Afterwards.GO_ON
        if name not in ("stranger", "stranger-then-kill"):
            return super().tamper(name, sandbox)
        (sandbox / "stranger").write_text("a stranger's bytes")
        return Afterwards.KILL if name.endswith("kill") else Afterwards.GO_ON

    def records(self, tree):
        return tree.file("log").decode().splitlines()

    def acknowledged(self, answer):
        return set(answer.fields.get("appended", []))

    def due(self, start):
        return {"b", "c"}

    def counters(self, tree):
        return {"records": len(self.records(tree))}

    def judge(self, history):
        return Judgement((), len(history.moments))


class KnowsInodes(Toy):
    knows_inodes = True


class Folds(Toy):
    abstraction = "nothing"
    folding = "how many records"

    def canonical(self, tree, *, folded):
        return "one and the same" if folded else super().canonical(tree, folded=False)


class LooksAtNothing(Toy):
    def judge(self, history):
        return Judgement((), 0)


class CountsNothing(Toy):
    def records(self, tree):
        return []

    due = acknowledged = lambda self, _: set()


class ProtectsNothing(Toy):
    append_only = foreign = ()
    allowed = ("*",)


class Raises(Toy):
    def judge(self, history):
        raise KeyError("the judge stumbled")


class EndsTheProcess(Toy):
    def judge(self, history):
        sys.exit("the judge left")


class CrashesTheProcess(Toy):
    def judge(self, history):
        if os.environ.get("PYTEST_XDIST_WORKER"):
            os._exit(3)
        return super().judge(history)


class CannotSetUp(Toy):
    def set_up(self, sandbox):
        raise OSError("no place to set up")


class NoScenario:
    pass
"""

HEALTHY = "toy.healthy"
RECOVERING = "toy.recovering"
TIMEOUT_S = 60
NEVER_COMMITS = ("hangs", "raises", "exits", "imports", "shot", "server-shot", "child-dies")
KILL_ROWS = {"toy.pending": "R1", "toy.appended": "R2", "toy.cleared": "none"}


def write_toy(directory: Path, matrix: Mapping[str, Any]) -> Path:
    """The project in ``directory``, and the path of its matrix.yaml."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "toy_points.py").write_text(POINTS)
    (directory / "toy.py").write_text(PROGRAM)
    (directory / "toy_judge.py").write_text(JUDGES)
    path = directory / "matrix.yaml"
    path.write_text(yaml.safe_dump(dict(matrix), sort_keys=False))
    return path


def scenario(wrong: str = "", judge: str = "Toy", **more: Any) -> dict[str, Any]:
    """A scenario of the program that is wrong in this way, under this judge. Keys of None are left out."""
    spec = {
        "says": f"two records are committed; wrong with it: {wrong or 'nothing'}",
        "judge": f"toy_judge:{judge}",
        "env": {"TOY": wrong, "TOY_HOME": "{sandbox}"},
        "run": ["python", "-m", "toy", "commit", "b", "c"],
        "recover": ["python", "-m", "toy", "recover"],
        "retry": None if wrong in NEVER_COMMITS else ["python", "-m", "toy", "commit", "b", "c"],
        "rivals": {"commit": ["python", "-m", "toy", "commit", "d"]},
    } | more
    return {key: value for key, value in spec.items() if value is not None}


def recovering(**more: Any) -> dict[str, Any]:
    """A scenario whose set-up dies at the pending record, and whose command under test is the recovery."""
    prepare = [{"run": ["python", "-m", "toy", "commit", "b"], "fault": "toy.pending#1=kill"}]
    return scenario(prepare=prepare, run=["python", "-m", "toy", "recover"], rivals=None, **more)


class Meeting:
    """Meets the program that ``waits`` in the project ``directory``: it is surely in the middle of a cell."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in ("ready", "go"):
            os.mkfifo(directory / name)

    def wait(self) -> int:
        """Until one has come; its pid."""
        return int((self._directory / "ready").read_text())

    def let_go(self) -> None:
        (self._directory / "go").write_bytes(b"")


def toy_matrix(scenarios: Mapping[str, Any] | None = None, *, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Every commit point in each of ``scenarios`` (one that is healthy), and the point of the recovery."""
    commits = dict(scenarios if scenarios is not None else {HEALTHY: scenario()})
    faults = [
        "kill",
        "error:ENOSPC",
        "rival:commit",
        "term",
        "tamper:stranger",
        "tamper:stranger-then-kill",
        "tamper:shoot",
    ]
    points: dict[str, Any] = {
        name: {
            "spec": "toy",
            "scenarios": list(commits),
            "faults": [*faults] if name == "toy.appended" else ["kill", "rival:commit"],
            "hits": 2,
            "expect": {"kill": {"row": row}, "rival:*": {"code": "BUSY"}},
        }
        for name, row in KILL_ROWS.items()
    }
    points["toy.appended"]["expect"]["error:ENOSPC"] = {"code": "ENOSPC", "row": "R1"}
    points["toy.redone"] = {
        "spec": "toy",
        "scenarios": [RECOVERING],
        "faults": ["kill"],
        "expect": {"kill": {"row": "R2"}},
    }
    return {
        "schema": 1,
        "catalogue": ["toy_points"],
        "defaults": {"timeout_s": timeout_s, "recoveries_max": 3},
        "scenarios": {**commits, RECOVERING: recovering()},
        "points": points,
    }


def small_matrix(*judges: str) -> dict[str, Any]:
    """Kills only, at every point: seven cells that pass, and for each of ``judges`` one scenario of six cells more."""
    matrix = toy_matrix({HEALTHY: scenario(), **{f"toy.{judge}": scenario(judge=judge) for judge in judges}})
    for row in matrix["points"].values():
        row["faults"] = ["kill"]
        row["expect"] = {"kill": row["expect"]["kill"]}
    return matrix
