"""A real disk of the collector, read as a :class:`tests.model.collector.Disk`. Every process that it names is dead."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from harness.judge.tree import Tree
from tests.model.collector import FOLD, Disk

PENDING = "state/refresh/pending.json"
LOCK = "archive/.bili-dynamic-formal-manifest.lock"
LATEST = "state/refresh/latest.json"


def read_disk(tree: Tree, run_id: str) -> Disk:
    """The disk as the model has it, of the run ``run_id``. Raises KeyError, ValueError for what cannot be one."""
    done = _settled(tree, run_id)
    if (data := tree.file(PENDING)) is None:
        return Disk(lock="CLAIM" if LOCK in tree.entries else None, **done).dead()
    pending = json.loads(data)
    claim, takeover = pending["formal_lock_claim"], pending["takeover"]
    planned = takeover.get("new_lock_bytes")
    there = [item for item in pending["quarantined"] if f"archive/{item['path']}" in tree.entries]
    listed = {item["path"] for item in pending["quarantined"]}
    old = takeover.get("quarantine_path")
    manifests = {name: _in_place(tree, name, pending["manifests"][name]) for name in ("cards", "runs")}
    return Disk(
        phase=pending["phase"],
        claim=claim["claim_state"],
        holder=False,
        takeover=takeover["phase"],
        materialised=takeover.get("old_lock_materialised", True),
        planner=None if planned is None else False,
        lock=_whose(tree.file(LOCK), claim["lock_bytes"], planned),
        aside=old is not None and old not in listed and f"archive/{old}" in tree.entries,
        attempt=planned is not None and _attempt(planned, takeover, pending["run_id"]) in tree.entries,
        listed=min(FOLD, len(there)),
        out=next((name for name in manifests if _is_out(tree, name, pending["manifests"][name])), None),
        **{**done, **manifests},
    )


def _settled(tree: Tree, run_id: str) -> dict[str, Any]:
    """What of the run is there for good: its lines, its slot, latest."""
    slots = [json.loads(tree.file(path) or b"{}") for path in tree if path.startswith("state/refresh/slots/")]
    return {
        "cards": run_id.encode() in _manifest(tree, "cards"),
        "runs": run_id.encode() in _manifest(tree, "runs"),
        "slot": any(slot.get("run_id") == run_id for slot in slots),
        "latest": json.loads(tree.file(LATEST) or b"{}").get("run_id") == run_id,
    }


def _manifest(tree: Tree, name: str) -> bytes:
    return b"".join(tree.file(p) or b"" for p in tree if p.startswith(f"archive/{name}/") and p.endswith(".jsonl"))


def _in_place(tree: Tree, name: str, plan: dict[str, Any]) -> bool:
    segment = tree.file(f"archive/{name}/{plan['segment']:06d}.jsonl")
    return segment is not None and hashlib.sha256(segment).hexdigest() == plan["candidate_sha256"]


def _is_out(tree: Tree, name: str, plan: dict[str, Any]) -> bool:
    beside = tree.file(f"archive/.candidates/{name}.jsonl")
    return beside is not None and hashlib.sha256(beside).hexdigest() == plan["base_sha256"]


def _whose(lock: bytes | None, claim: str, planned: str | None) -> str | None:
    if lock is None:
        return None
    return "CLAIM" if lock.decode() == claim else "PLANNED" if lock.decode() == planned else "THIRD"


def _attempt(planned: str, takeover: dict[str, Any], run_id: str) -> str:
    digest = hashlib.sha256(planned.encode()).hexdigest()
    generation = json.loads(planned)["recovery_generation"]
    name = f"{run_id}-g{generation}-attempt{takeover['claim_attempt']}-{digest}.json"
    return f"{LOCK}.quarantine/{name}"
