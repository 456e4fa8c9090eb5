"""The command on a state of its own: in this process where nothing dies, else as a real one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import killpoints
from product.sites.cli import main

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60
NOW = 100_000


@dataclass(frozen=True)
class Ran:
    """What one run of the command said: ``answer`` is the JSON object of stdout, ``words`` is stderr."""

    status: int
    answer: dict[str, Any]
    words: str

    @property
    def code(self) -> str | None:
        return self.answer.get("code")

    def require_done(self) -> dict[str, Any]:
        assert self.status == 0 and self.answer["ok"] is True, (self.answer, self.words)
        return self.answer


class Bench:
    """A state directory below ``root``, and a number for every signal."""

    def __init__(self, root: Path) -> None:
        self.root, self.state, self.number = root, root / "state", 0

    def run(self, command: str, *options: str, plan: str = "", now: int = NOW) -> Ran:
        """In this process, with ``plan`` armed; only for what nothing dies of."""
        out, words = io.StringIO(), io.StringIO()
        if plan:
            killpoints.arm(plan)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(words):
                status = main(self.argv(command, *options, now=now))
        finally:
            killpoints.disarm()
        return Ran(status, json.loads(out.getvalue().splitlines()[-1]), words.getvalue())

    def argv(self, command: str, *options: str, now: int = NOW) -> list[str]:
        if command == "replay":
            return [command, *options]
        clock = [] if command == "check" else ["--now", str(now)]
        return [command, "--state", str(self.state), *clock, *options]

    def write(self, *signals: dict[str, Any]) -> Path:
        path = self.root / "signals.jsonl"
        path.write_text("".join(json.dumps(fields) + "\n" for fields in signals))
        return path

    def give(self, outcome: str, *urls: str, now: int = NOW, **fields: object) -> dict[str, Any]:
        """Signals of one outcome, one for each URL."""
        signals = []
        for url in urls:
            self.number += 1
            signals.append({"id": f"s{self.number}", "outcome": outcome, "url": url, **fields})
        return self.run("apply", "--signals", str(self.write(*signals)), now=now).require_done()

    def explain(self, site: str, now: int = NOW) -> dict[str, Any]:
        return self.run("explain", site, now=now).require_done()

    def state_of(self, site: str, now: int = NOW) -> str:
        state: str = self.explain(site, now)["state"]
        return state

    def kill_at(self, point: str, command: str, *options: str) -> None:
        """A process of its own dies by its own SIGKILL exactly there."""
        process = subprocess.run(
            [sys.executable, "-m", "product.sites", *self.argv(command, *options)],
            cwd=REPOSITORY,
            env=os.environ | {"KILLPOINTS": f"{point}=kill"},
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert process.returncode == -signal.SIGKILL, process.stderr

    def snapshot(self) -> dict[str, bytes]:
        return {str(p.relative_to(self.state)): p.read_bytes() for p in sorted(self.state.rglob("*")) if p.is_file()}
