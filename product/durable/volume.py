"""Whether two paths are on one volume, so that a rename between them can be atomic. Only reads."""

from __future__ import annotations

import os
from pathlib import Path

from product.durable.errors import VolumeMismatch


def volume_of(path: Path) -> str:
    """The identity of the volume ``path`` is on: the device number, on Windows the volume serial number."""
    return str(os.lstat(path).st_dev)


def require_one_volume(first: Path, second: Path) -> None:
    """Raise VolumeMismatch unless both paths are provably on one volume; a query that fails proves nothing.

    Two mounts of one file system pass here and still refuse the rename with EXDEV; that OSError comes from the rename.
    """
    try:
        volumes = volume_of(first), volume_of(second)
    except OSError as error:
        message = f"cannot tell the volumes of {first} and {second}: {error.strerror}"
        raise VolumeMismatch(message, paths=[str(first), str(second)], errno=error.errno) from error
    if volumes[0] != volumes[1]:
        message = f"{first} and {second} are on different volumes"
        raise VolumeMismatch(message, paths=[str(first), str(second)], volumes=list(volumes))
