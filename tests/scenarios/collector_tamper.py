"""What others do to the collector's disk: third content, other holders, cut files. Shares no code with the product."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.judge.scenario import Afterwards

LOCK = "archive/.bili-dynamic-formal-manifest.lock"
QUARANTINE = f"{LOCK}.quarantine"
PENDING = "state/refresh/pending.json"
TAMPERS: dict[str, Callable[[Path], Afterwards]] = {}


def tamper(
    name: str, afterwards: Afterwards = Afterwards.GO_ON
) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Register the decorated change as ``tamper:NAME``; the held process then goes on, or dies."""

    def register(change: Callable[[Path], None]) -> Callable[[Path], None]:
        def act(sandbox: Path) -> Afterwards:
            change(sandbox)
            return afterwards

        TAMPERS[name] = act
        return change

    return register


# ------------------------------------------------------------------------------------------------ the formal lock


@tamper("foreign-lock")
def put_foreign_lock(sandbox: Path) -> None:
    (sandbox / LOCK).write_bytes(b'{"somebody":"else"}')


@tamper("changed-lock")
def change_lock(sandbox: Path) -> None:
    append(sandbox / LOCK, b" ")


@tamper("third-lock", Afterwards.KILL)
def replace_lock(sandbox: Path) -> None:
    (sandbox / LOCK).write_bytes(b'{"somebody":"else"}')


@tamper("empty-lock", Afterwards.KILL)
def empty_lock(sandbox: Path) -> None:
    (sandbox / LOCK).write_bytes(b"")


@tamper("symlink-lock", Afterwards.KILL)
def link_lock(sandbox: Path) -> None:
    (sandbox / LOCK).rename(sandbox / "archive/elsewhere")
    (sandbox / LOCK).symlink_to("elsewhere")


@tamper("hardlink-lock", Afterwards.KILL)
def hard_link_lock(sandbox: Path) -> None:
    os.link(sandbox / LOCK, sandbox / "archive/elsewhere")


@tamper("directory-lock", Afterwards.KILL)
def make_lock_a_directory(sandbox: Path) -> None:
    (sandbox / LOCK).rename(sandbox / "archive/elsewhere")
    (sandbox / LOCK).mkdir()


@tamper("lost-lock", Afterwards.KILL)
def lose_lock(sandbox: Path) -> None:
    (sandbox / LOCK).unlink()


def _register_other_claims() -> None:
    """A lock of another run, nonce, transaction or generation: whole and well-formed, and not this claim's."""
    others: dict[str, tuple[str, object]] = {
        "other-run": ("run_id", "somebody-else"),
        "other-nonce": ("owner_nonce", "1" * 64),
        "other-transaction": ("transaction_id", "2" * 64),
        "other-generation": ("recovery_generation", 7),
    }
    for name, (key, value) in others.items():

        @tamper(f"{name}-lock", Afterwards.KILL)
        def change(sandbox: Path, key: str = key, value: object = value) -> None:
            record = json.loads((sandbox / LOCK).read_bytes())
            (sandbox / LOCK).write_bytes(canonical(record | {key: value}))


_register_other_claims()


# ---------------------------------------------------------------------------------------------- who holds the lock


def _register_holders() -> None:
    def alive(sandbox: Path) -> None:
        set_holder(sandbox, os.getpid(), own_stamp())

    def reused(sandbox: Path) -> None:
        set_holder(sandbox, os.getpid(), own_stamp(-1))

    def unproven(sandbox: Path) -> None:
        _, _, _, namespace, ticks = own_stamp().split(":")
        set_holder(sandbox, os.getpid(), f"linux:{'0' * 32}:{'0' * 8}-0000-0000-0000-{'0' * 12}:{namespace}:{ticks}")

    for name, change in (("alive", alive), ("reused", reused), ("unproven", unproven)):
        tamper(f"holder-{name}", Afterwards.KILL)(change)


_register_holders()


def _stamp_of(pid: int) -> str:
    """As own_stamp(), of a process of this boot and namespace."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return own_stamp().rpartition(":")[0] + f":{ticks}"


@tamper("holder-alive-now")
def bring_holder_to_life(sandbox: Path) -> None:
    """Between two steps of a takeover: an answer that was got before the first proves nothing at the second."""
    set_holder(sandbox, os.getpid(), own_stamp())


_unreaped: list[subprocess.Popen[bytes]] = []  # kept: a dropped one would be reaped by the next


@tamper("holder-zombie", Afterwards.KILL)
def let_holder_be_a_zombie(sandbox: Path) -> None:
    """A holder that died and that its parent (this process) has not reaped: it still has a pid and a stamp."""
    _unreaped.append(subprocess.Popen(["true"]))
    pid = _unreaped[-1].pid
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    set_holder(sandbox, pid, _stamp_of(pid))


def own_stamp(offset: int = 0) -> str:
    """This process's creation stamp as the collector's page words it, from /proc."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    namespace = os.readlink("/proc/self/ns/pid").partition("[")[2].rstrip("]")
    machine = Path("/etc/machine-id").read_text().strip()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"linux:{machine}:{boot}:{namespace}:{ticks + offset}"


def set_holder(sandbox: Path, pid: int, stamp: str) -> None:
    """Make everything say, consistently, that this process holds what the takeover in progress asks about."""
    pending = json.loads((sandbox / PENDING).read_bytes())
    takeover = pending["takeover"]
    old: dict[str, Any] = takeover.get("new_lock_record") or pending["formal_lock_claim"]["lock_record"]
    new = old | {"holder_pid": pid, "holder_process_created_at": stamp}
    exchanged = _exchange(pending, old, new)
    (sandbox / PENDING).write_bytes(canonical(exchanged))
    before, after = canonical(old), canonical(new)
    for path in [sandbox / LOCK, *(sandbox / QUARANTINE).glob("*.json")]:
        if path.is_file() and path.read_bytes() == before:
            path.write_bytes(after)
            path.rename(path.with_name(path.name.replace(sha256(before), sha256(after))))


def _exchange(value: Any, old: dict[str, Any], new: dict[str, Any]) -> Any:
    """The document with the lock record, its bytes, its hash, and the names and sizes made from them exchanged."""
    before, after = canonical(old), canonical(new)
    if value == old:
        return new
    if isinstance(value, dict):
        out = {key: _exchange(item, old, new) for key, item in value.items()}
        return out | {"size": len(after)} if value.get("sha256") == sha256(before) else out
    if isinstance(value, list):
        return [_exchange(item, old, new) for item in value]
    if isinstance(value, str):
        return after.decode() if value == before.decode() else value.replace(sha256(before), sha256(after))
    return value


# ----------------------------------------------------------------------------------------- quarantine, pending, rest


@tamper("foreign-quarantine", Afterwards.KILL)
def put_into_quarantine(sandbox: Path) -> None:
    """Something that nobody listed."""
    (sandbox / QUARANTINE / "somebody-else.json").write_bytes(b"{}")


@tamper("occupied-quarantine")
def occupy_quarantine(sandbox: Path) -> None:
    """Other content under the very name that the old lock is to get."""
    pending = json.loads((sandbox / PENDING).read_bytes())
    (sandbox / "archive" / pending["takeover"]["quarantine_path"]).write_bytes(b"{}")


@tamper("changed-item", Afterwards.KILL)
def change_item(sandbox: Path) -> None:
    pending = json.loads((sandbox / PENDING).read_bytes())
    append(sandbox / "archive" / pending["quarantined"][0]["path"], b" ")


@tamper("old-quarantine")
def make_abolished_quarantine(sandbox: Path) -> None:
    """The quarantine under the state root, of the abolished kind: never created, never read."""
    (sandbox / "state/refresh/lock-recovery").mkdir()
    (sandbox / "state/refresh/lock-recovery/old.json").write_bytes(b"{}")


@tamper("cut-pending", Afterwards.KILL)
def cut_pending(sandbox: Path) -> None:
    cut(sandbox / PENDING)


@tamper("nul-pending", Afterwards.KILL)
def fill_pending(sandbox: Path) -> None:
    fill(sandbox / PENDING)


@tamper("changed-pending")
def change_pending(sandbox: Path) -> None:
    """Right before it is removed."""
    append(sandbox / PENDING, b" ")


@tamper("lost-pending", Afterwards.KILL)
def lose_pending(sandbox: Path) -> None:
    """A formal lock without pending: nothing is taken over, nothing deleted."""
    (sandbox / PENDING).unlink()


@tamper("future-claim", Afterwards.KILL)
def move_claim_into_the_future(sandbox: Path) -> None:
    pending = json.loads((sandbox / PENDING).read_bytes())
    old = pending["formal_lock_claim"]["lock_record"]
    new = old | {"lock_created_at": "2199-01-01T00:00:00Z"}
    (sandbox / PENDING).write_bytes(canonical(_exchange(pending, old, new)))
    (sandbox / LOCK).write_bytes(canonical(new))


@tamper("frozen-holder", Afterwards.KILL)
def freeze_new_holder(sandbox: Path) -> None:
    """A plan that names who will recover, as an earlier protocol wrote it."""
    pending = json.loads((sandbox / PENDING).read_bytes())
    pending["takeover"]["new_lock_record"] = pending["formal_lock_claim"]["lock_record"]
    (sandbox / PENDING).write_bytes(canonical(pending))


@tamper("cut-latest")
def cut_latest(sandbox: Path) -> None:
    cut(sandbox / "state/refresh/latest.json")


@tamper("changed-evidence", Afterwards.KILL)
def change_evidence(sandbox: Path) -> None:
    (found,) = (sandbox / "state/refresh/runs").glob("*/evidence.json")
    append(found, b" ")


@tamper("lost-index", Afterwards.KILL)
def lose_index(sandbox: Path) -> None:
    (sandbox / "state/refresh/index.sqlite").unlink()


@tamper("cut-index", Afterwards.KILL)
def cut_index(sandbox: Path) -> None:
    cut(sandbox / "state/refresh/index.sqlite")


@tamper("nul-index", Afterwards.KILL)
def fill_index(sandbox: Path) -> None:
    fill(sandbox / "state/refresh/index.sqlite")


# -------------------------------------------------------------------------------------------------------- manifests


@tamper("changed-cards", Afterwards.KILL)
def change_cards(sandbox: Path) -> None:
    append_line(sandbox / "archive/cards/000001.jsonl")


@tamper("changed-runs", Afterwards.KILL)
def change_runs(sandbox: Path) -> None:
    append_line(sandbox / "archive/runs/000001.jsonl")


@tamper("changed-base")
def change_base(sandbox: Path) -> None:
    """A write that lands in the base between the exchange and the look at it."""
    append_line(sandbox / "archive/.candidates/cards.jsonl")


@tamper("changed-candidate", Afterwards.KILL)
def change_candidate(sandbox: Path) -> None:
    append(sandbox / "archive/.candidates/cards.jsonl", b" ")


@tamper("more-segments", Afterwards.KILL)
def add_segment(sandbox: Path) -> None:
    first = sandbox / "archive/cards/000001.jsonl"
    (sandbox / "archive/cards/000002.jsonl").write_bytes(next_line(first.read_bytes().splitlines()[-1]))


def append_line(path: Path) -> None:
    """What another writer, who knows the format and nothing of the lock, would append: one well-formed line."""
    append(path, next_line(path.read_bytes().splitlines()[-1]))


def next_line(last: bytes) -> bytes:
    line = json.loads(last)
    line |= {"seq": line["seq"] + 1, "prev": sha256(last), "run_id": "somebody-else"}
    if "identifiers" in line:
        line |= {
            "identifiers": {"dynamic_id": "1", "opus_id": None, "bvid": None},
            "stable_keys": ["dynamic:1"],
            "source_url": "https://t.bilibili.com/1",
        }
    else:
        line |= {"cards_appended": 0, "first_card_seq": None}
    return canonical(line) + b"\n"


# ---------------------------------------------------------------------------------------------------------- helpers


def canonical(value: object) -> bytes:
    """RFC 8785 for what is in here: ASCII keys and text, integers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def fill(path: Path) -> None:
    """NUL bytes of the same length: what a file system without delayed-allocation ordering leaves."""
    path.write_bytes(bytes(len(path.read_bytes())))
