"""Where everything lies: all paths are derived mechanically from the two roots (collector.md section 1). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

SLOTS = 168
LOCK_NAME = ".bili-dynamic-formal-manifest.lock"
QUARANTINE_NAME = f"{LOCK_NAME}.quarantine"
MARKER_NAME = ".owner-marker.json"
MARKER_BYTES = b'{"owner":"killmatrix-collector-formal-lock-quarantine","schema_version":1}'
MANIFESTS = ("cards", "runs")


@dataclass(frozen=True)
class Layout:
    """The two roots and every path below them. Absolute paths; relative names where pending.json stores them.

    Each is made once: making paths was a tenth of a commit.
    """

    state: Path
    archive: Path

    @cached_property
    def state_lock(self) -> Path:
        return self.state / ".collector.lock"

    @cached_property
    def owner(self) -> Path:
        return self.state / ".collector.lock.owner.json"

    @cached_property
    def owner_quarantine(self) -> Path:
        return self.state / ".collector.lock.owner.quarantine"

    @cached_property
    def refresh(self) -> Path:
        return self.state / "refresh"

    @cached_property
    def pending(self) -> Path:
        return self.refresh / "pending.json"

    @cached_property
    def runs_directory(self) -> Path:
        return self.refresh / "runs"

    @cached_property
    def slots_directory(self) -> Path:
        return self.refresh / "slots"

    @cached_property
    def latest(self) -> Path:
        return self.refresh / "latest.json"

    @cached_property
    def leftovers(self) -> Path:
        return self.refresh / "leftovers.json"

    @cached_property
    def index(self) -> Path:
        return self.refresh / "index.sqlite"

    @cached_property
    def formal_lock(self) -> Path:
        return self.archive / LOCK_NAME

    @cached_property
    def quarantine(self) -> Path:
        return self.archive / QUARANTINE_NAME

    @cached_property
    def marker(self) -> Path:
        return self.quarantine / MARKER_NAME

    @cached_property
    def candidates(self) -> Path:
        return self.archive / ".candidates"

    def evidence_name(self, run_id: str) -> str:
        """Relative to the state root, as pending.json stores it."""
        return f"refresh/runs/{run_id}/evidence.json"

    def evidence(self, run_id: str) -> Path:
        return self.runs_directory / run_id / "evidence.json"

    def slot(self, number: int) -> Path:
        return self.slots_directory / f"{number:03d}.json"

    def manifest_directory(self, manifest: str) -> Path:
        return self.archive / manifest

    def segment(self, manifest: str, number: int) -> Path:
        return self.manifest_directory(manifest) / segment_name(number)

    def candidate(self, manifest: str) -> Path:
        return self.candidates / f"{manifest}.jsonl"

    def directories(self) -> tuple[Path, ...]:
        """Every directory that a run needs, parents first."""
        return (
            self.refresh,
            self.runs_directory,
            self.slots_directory,
            self.quarantine,
            self.manifest_directory("cards"),
            self.manifest_directory("runs"),
            self.candidates,
        )


def segment_name(number: int) -> str:
    return f"{number:06d}.jsonl"


def segment_number(name: str) -> int | None:
    """The number of a segment's file name, or None where the name is not one."""
    stem, dot, ending = name.partition(".")
    if dot and ending == "jsonl" and len(stem) == 6 and stem.isascii() and stem.isdigit() and int(stem) > 0:
        return int(stem)
    return None


def quarantine_name(run_id: str, generation: int, sha256: str) -> str:
    """Of an old claim's lock, relative to the archive root."""
    return f"{QUARANTINE_NAME}/{run_id}-g{generation}-{sha256}.json"


def attempt_name(run_id: str, generation: int, attempt: int, sha256: str) -> str:
    """Of a failed attempt's lock, relative to the archive root."""
    return f"{QUARANTINE_NAME}/{run_id}-g{generation}-attempt{attempt}-{sha256}.json"


def slot_of(hour: str) -> int:
    """The slot of a UTC hour (``2026-11-30T12:00:00Z``): hours since the epoch, modulo 168."""
    return hour_number(hour) % SLOTS


def hour_number(hour: str) -> int:
    """Hours since the epoch."""
    return int(datetime.fromisoformat(hour).timestamp()) // 3600
