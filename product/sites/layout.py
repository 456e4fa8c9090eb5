"""Where everything lies below the state directory. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    state: Path

    @property
    def lock(self) -> Path:
        return self.state / ".sites.lock"

    @property
    def journal(self) -> Path:
        return self.state / "journal.jsonl"

    @property
    def knowledge(self) -> Path:
        return self.state / "state.json"

    @property
    def cursor(self) -> Path:
        return self.state / "cursor.json"
