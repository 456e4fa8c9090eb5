"""Spawn kind ``fork``: one warm server for each program, forked once for each process (harness.md, "Speed").

One server for each program, and not one for all: what one program imports must not be there for another, and imports
that fail, hang or end the process do so where nothing else is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from harness.model import Command
from harness.spawn.client import ProcessServer, ServerSpawner
from harness.spawn.program import Program, name_program

WARM_MAX = 8  # servers; the programs after that are started afresh


class ForkSpawner(ServerSpawner):
    """Forks ``python -m MODULE`` and ``python SCRIPT``; anything else, and programs that are cold, it starts afresh."""

    def __init__(self, project: Path, warm: Sequence[str], measuring: str = "") -> None:
        super().__init__(project, measuring)
        self._modules = tuple(warm)
        self._warm: dict[Program, ProcessServer] = {}
        self._cold: dict[str, str] = {}

    @property
    def cold(self) -> Mapping[str, str]:
        """Programs that are started afresh although they look as if they could be forked, with the reason."""
        return MappingProxyType(self._cold)

    def _server_for(self, command: Command) -> ProcessServer:
        program = name_program(command.argv, command.cwd, command.env, self._project)
        if program is None or program.name in self._cold:
            return super()._server_for(command)
        server = self._warm.get(program)
        if server is None or server.lost is not None:
            server = self._warm_up(program, command.timeout_s)
        return server if server is not None else super()._server_for(command)

    def _warm_up(self, program: Program, timeout_s: float) -> ProcessServer | None:
        self._warm.pop(program, None)
        if len(self._warm) >= WARM_MAX:
            self._cold[program.name] = f"{WARM_MAX} programs are warm already"
            return None
        server = self._open_server()
        reason = server.warm(program, self._modules, self._project, timeout_s, self._measuring)
        if reason is not None:
            self._cold[program.name] = reason
            return None
        self._warm[program] = server
        return server

    def _servers(self) -> list[ProcessServer]:
        return [*super()._servers(), *self._warm.values()]
