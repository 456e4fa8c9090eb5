"""Directories as a whole: one that is filled aside and gets its name at once, and one that is empty and goes.

As in :mod:`product.durable.files`, the point that is given stands around the whole and its steps mark what is done inside.
Nothing here goes through a directory: what is below was made durable by who wrote it.
"""

from __future__ import annotations

import os
from pathlib import Path

from killpoints import Point, attempt
from product.durable import rename
from product.durable.files import sync_directories, sync_directory

MOVE_DIRECTORY_STEPS = ("renamed", "dir-synced")
REMOVE_DIRECTORY_STEPS = ("removed", "dir-synced")


def move_directory_new(source: Path, target: Path, *, point: Point) -> None:
    """Rename the directory ``source`` to the free name ``target`` on the same volume; declare with MOVE_DIRECTORY_STEPS.

    Raises FileExistsError (also for an empty directory of that name), FileNotFoundError, RenameUnsupported or OSError,
    with nothing moved.
    """
    attempt(point, _move, source, target, point)


def _move(source: Path, target: Path, point: Point) -> None:
    attempt(point.at("renamed"), rename.rename_new, source, target)
    attempt(point.at("dir-synced"), sync_directories, target.parent, source.parent)


def remove_directory(path: Path, *, point: Point) -> None:
    """Remove the directory, which must be empty; declare with REMOVE_DIRECTORY_STEPS.

    Raises OSError with nothing removed: ENOTEMPTY where something is in it, ENOTDIR for a link of that name.
    """
    attempt(point, _remove, path, point)


def _remove(path: Path, point: Point) -> None:
    attempt(point.at("removed"), os.rmdir, path)
    attempt(point.at("dir-synced"), sync_directory, path.parent)
