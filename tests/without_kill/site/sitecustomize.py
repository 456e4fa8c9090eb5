"""Python imports this first where this directory is on PYTHONPATH: killpoints' kill then does nothing but write a line.

It finds itself a way into every process that is started: a variable of the environment names the directory, and where
a test makes an environment of its own, subprocess puts it back in. Neither the product nor the harness knows of it.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

NOTES = "WITHOUT_KILL_NOTES"  # the file that "armed" and "due" are written to
SITE = str(Path(__file__).resolve().parent)


def note(word: str) -> None:
    """One line, never torn: the processes of a test write to one file."""
    descriptor = os.open(os.environ[NOTES], os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, f"{word}\n".encode())
    os.close(descriptor)


def remove_kill(actions: Any) -> None:
    """``killpoints.actions`` ends nothing any more, and tells what was armed and what was due."""
    real = actions.Armed.__init__

    def arm(self: Any, plan: Any, *rest: Any, **more: Any) -> None:
        real(self, plan, *rest, **more)
        if any(arming.action.kind == "kill" for arming in plan.armings):
            note("armed")

    actions.Armed.__init__ = arm
    actions._end_self = lambda _number: note("due")


def keep_in_environment(subprocess: Any) -> None:
    """A process that is given an environment of its own is given this one's way in, too."""
    real = subprocess.Popen.__init__

    def start(self: Any, *arguments: Any, env: Any = None, **more: Any) -> None:
        if env is not None:
            env = {**env, NOTES: os.environ[NOTES], "PYTHONPATH": with_site(env.get("PYTHONPATH", ""))}
        real(self, *arguments, env=env, **more)

    subprocess.Popen.__init__ = start


def with_site(path: str) -> str:
    """PYTHONPATH with this directory in it."""
    parts = [part for part in path.split(os.pathsep) if part and part != SITE]
    return os.pathsep.join([*parts, SITE])


PATCHES = {"killpoints.actions": remove_kill, "subprocess": keep_in_environment}


class KillRemoval:
    """On ``sys.meta_path``: each of PATCHES is applied when its module has been imported, and not before."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name in PATCHES else None
        if spec is not None:
            loader: Any = spec.loader
            real = loader.exec_module

            def execute(module: Any) -> None:
                real(module)
                PATCHES[name](module)

            loader.exec_module = execute
        return spec


def install() -> None:
    """In this process, once: now what is imported already, the rest when it is."""
    if any(getattr(finder, "__name__", "") == KillRemoval.__name__ for finder in sys.meta_path):
        return
    os.environ["PYTHONPATH"] = with_site(os.environ.get("PYTHONPATH", ""))
    for name, patch in PATCHES.items():
        if name in sys.modules:
            patch(sys.modules[name])
    sys.meta_path.insert(0, KillRemoval)


if NOTES in os.environ:
    install()
