"""The counter's command on a file and a state of its own: in this process where nothing dies, else as a real one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import killpoints
from product.signals.cli import main
from tests.scenarios.signals import padded as padded
from tests.scenarios.signals import recount as recount

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60

needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals, links and inherited pipes")


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
    """A file of signals and a state directory below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root, self.file, self.state = root, root / "signals.jsonl", root / "state"
        self.file.touch()

    def append(self, *pieces: bytes) -> None:
        with self.file.open("ab") as stream:
            for piece in pieces:
                stream.write(piece)

    def argv(self, command: str, *options: str) -> list[str]:
        file = [] if command == "show" else ["--file", str(self.file)]
        return [command, *file, "--state", str(self.state), *options]

    def run(self, command: str, *options: str, plan: str = "") -> Ran:
        """In this process, with ``plan`` armed; only for what nothing dies of."""
        out, words = io.StringIO(), io.StringIO()
        if plan:
            killpoints.arm(plan)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(words):
                status = main(self.argv(command, *options))
        finally:
            killpoints.disarm()
        return Ran(status, json.loads(out.getvalue().splitlines()[-1]), words.getvalue())

    def scan(self, *options: str, plan: str = "") -> Ran:
        return self.run("scan", *options, plan=plan)

    def start(
        self,
        command: str,
        *options: str,
        plan: str = "",
        pass_fds: tuple[int, ...] = (),
        environment: dict[str, str] | None = None,
        preexec: Callable[[], None] | None = None,
    ) -> subprocess.Popen[bytes]:
        """As a process of its own, with ``plan`` armed."""
        return subprocess.Popen(
            [sys.executable, "-m", "product.signals", *self.argv(command, *options)],
            cwd=REPOSITORY,
            env=os.environ | {"KILLPOINTS": plan} | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=pass_fds,
            preexec_fn=preexec,
        )

    def kill_at(self, point: str, command: str = "scan", *options: str) -> None:
        """A process of its own dies by its own SIGKILL exactly there."""
        process = self.start(command, *options, plan=f"{point}=kill")
        _, words = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == -signal.SIGKILL, words

    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = self.run("show").require_done()["counts"]
        return counts

    def document(self, name: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.state / name).read_bytes())
        return document

    def require_exact(self) -> None:
        """check agrees, and so does the judge's own count of the file up to where it was counted."""
        checked = self.run("check").require_done()
        due, rejected = recount(self.file.read_bytes()[: checked["applied"]])
        seen = self.run("show").require_done()
        assert Counter(seen["counts"]) == due
        assert {reason: entry["count"] for reason, entry in seen["rejected"].items()} == rejected

    def snapshot(self) -> dict[str, bytes]:
        """Every file below the root."""
        return {str(p.relative_to(self.root)): p.read_bytes() for p in sorted(self.root.rglob("*")) if p.is_file()}


def signal_of(key: str, **fields: object) -> bytes:
    return json.dumps({"key": key, **fields}, ensure_ascii=False).encode() + b"\n"
