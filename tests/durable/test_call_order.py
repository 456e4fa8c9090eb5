"""The order of syncs and renames in every primitive (case B041), which no kill can show.

The calls are recorded as they are made; :func:`faults_in` holds the record against the rule. The rule itself is tried
out: every single sync is left out in turn, and each time the rule must notice (case B178).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from product.durable import files, rename
from product.durable.files import Digest
from tests.durable import points
from tests.durable.points import make_lock
from tests.durable.support import needs_linux
from tests.durable.worker import NEW, OLD

pytestmark = needs_linux


class Call(NamedTuple):
    """One call that changes the disk: ``path`` is what it acts on, ``target`` the new name of a rename."""

    kind: str
    path: Path
    target: Path | None = None


class Recorder:
    """Records the calls; leaves out the sync number ``without`` (from 0), as if the code did not have it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, without: int | None = None) -> None:
        self.calls: list[Call] = []
        self.syncs = 0
        self._without = without
        self._wrap(monkeypatch, os, "write", lambda descriptor, data: Call("write", path_of(descriptor)))
        self._wrap(monkeypatch, os, "fsync", lambda descriptor: Call("sync", path_of(descriptor)))
        self._wrap(monkeypatch, os, "unlink", lambda path: Call("unlink", Path(path)))
        self._wrap(monkeypatch, os, "mkdir", lambda path: Call("mkdir", Path(path)))
        self._wrap(monkeypatch, os, "replace", lambda source, target: Call("rename", Path(source), Path(target)))
        self._wrap(monkeypatch, rename, "rename_new", lambda source, target: Call("rename", source, target))
        self._wrap(monkeypatch, rename, "exchange", lambda first, second: Call("exchange", first, second))

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, describe: Callable[..., Call]) -> None:
        real = getattr(module, name)

        def recorded(*arguments: Any) -> Any:
            call = describe(*arguments)
            if call.kind == "sync":
                self.syncs += 1
                if self.syncs - 1 == self._without:
                    return None
            self.calls.append(call)
            return real(*arguments)

        monkeypatch.setattr(module, name, recorded)


def path_of(descriptor: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


def faults_in(calls: list[Call]) -> list[str]:
    """What breaks the rule: content is synced before it gets a name that counts, and each change of names is synced in
    its directory before the next change of names (a deletion above all) and before the primitive returns."""
    return [
        fault
        for index, call in enumerate(calls)
        for fault in faults_of(call, calls[:index], calls[index + 1 :])
        if not call.path.name.endswith(".tmp") or call.kind in ("rename", "exchange")  # a temporary name counts not
    ]


def faults_of(call: Call, before: list[Call], after: list[Call]) -> list[str]:
    match call.kind:
        case "rename" | "exchange":
            assert call.target is not None
            faults = [] if is_synced(call.path, before) else [f"{call.path} gets its name before its content is synced"]
            if after[:1] == [call]:
                after = after[1:]  # exchanged and at once exchanged back: one sync is for both
            return faults + missing(call, {call.target.parent, call.path.parent}, upto_next_change(after))
        case "unlink" | "mkdir":
            return missing(call, {call.path.parent}, upto_next_change(after))
        case _:
            return []


def is_synced(path: Path, before: list[Call]) -> bool:
    """Whether a sync of the file follows its last write."""
    acts = [call.kind for call in before if call.path == path and call.kind in ("write", "sync")]
    return acts[-1:] == ["sync"]


def upto_next_change(after: list[Call]) -> list[Call]:
    return list(itertools.takewhile(lambda call: call.kind in ("write", "sync"), after))


def missing(call: Call, directories: set[Path], after: list[Call]) -> list[str]:
    synced = {later.path for later in after if later.kind == "sync"}
    return [f"{call.kind} {call.path}: {directory} is not synced in time" for directory in directories - synced]


def act_put_new(root: Path) -> None:
    files.put_new(root / "target", NEW, point=points.PUT_NEW)


def act_put_over(root: Path) -> None:
    files.put(root / "target", NEW, point=points.PUT)


def act_move_new(root: Path) -> None:
    files.move_new(root / "source", root / "there" / "moved", expected=Digest.of(OLD), point=points.MOVE)


def act_put_exchanged(root: Path) -> None:
    files.put_exchanged(
        root / "there" / "candidate",
        root / "target",
        base=Digest.of(OLD),
        candidate_digest=Digest.of(NEW),
        point=points.EXCHANGE,
    )


def act_put_replaced_where_nothing_exchanges(root: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rename, "CAN_EXCHANGE", False)
        act_put_exchanged(root)


def act_put_exchanged_back(root: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "require_exactly", refuse)
        with pytest.raises(OSError, match="no"):
            act_put_exchanged(root)


def refuse(path: Path, expected: Digest) -> None:
    raise OSError("no")


def act_remove(root: Path) -> None:
    files.remove(root / "target", expected=Digest.of(OLD), point=points.REMOVE)


def act_make_directory(root: Path) -> None:
    files.make_directory(root / "new", point=points.DIRECTORY)


def act_make_directory_that_is_there(root: Path) -> None:
    files.make_directory(root / "there", point=points.DIRECTORY)


def act_lock_and_unlock(root: Path) -> None:
    with make_lock(root):
        pass


ACTS: dict[Callable[[Path], None], int] = {
    act_put_new: 2,
    act_put_over: 2,
    act_move_new: 3,
    act_put_exchanged: 4,
    act_put_replaced_where_nothing_exchanges: 4,
    act_put_exchanged_back: 3,
    act_remove: 1,
    act_make_directory: 1,
    act_make_directory_that_is_there: 1,  # a death after the first making may have left it unsynced
    act_lock_and_unlock: 5,
}
"""Every primitive, with the number of its syncs."""

# Where nothing was deleted after the replace, the last sync of that directory has nothing left to say
IDLE = {(act_put_replaced_where_nothing_exchanges, 2), (act_put_replaced_where_nothing_exchanges, 3)}


def record(root: Path, act: Callable[[Path], None], without: int | None = None) -> Recorder:
    root.mkdir()
    (root / "there").mkdir()
    (root / "target").write_bytes(OLD)
    (root / "source").write_bytes(OLD)
    (root / "there" / "candidate").write_bytes(NEW)
    if act is act_put_new:
        (root / "target").unlink()
    with pytest.MonkeyPatch.context() as patch:
        recorder = Recorder(patch, without)
        act(root)
    return recorder


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_b041_every_primitive_syncs_in_order(tmp_path: Path, act: Callable[[Path], None]) -> None:
    recorder = record(tmp_path / "root", act)
    assert faults_in(recorder.calls) == []
    assert recorder.syncs == ACTS[act]


@pytest.mark.parametrize(
    ("act", "number"),
    [(act, number) for act, count in ACTS.items() for number in range(count) if (act, number) not in IDLE],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_b178_a_sync_that_is_left_out_is_noticed(tmp_path: Path, act: Callable[[Path], None], number: int) -> None:
    assert faults_in(record(tmp_path / "root", act, without=number).calls) != []


def test_the_base_is_deleted_last(tmp_path: Path) -> None:
    root = tmp_path / "root"
    calls = record(root, act_put_exchanged).calls
    assert calls == [
        Call("sync", root / "there" / "candidate"),
        Call("exchange", root / "there" / "candidate", root / "target"),
        Call("sync", root),
        Call("sync", root / "there"),
        Call("unlink", root / "there" / "candidate"),
        Call("sync", root / "there"),
    ]
