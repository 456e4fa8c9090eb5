"""Makes a bundle aside and gives it its name when it is whole; clears what a dead handoff left.

Which crash each order survives: nothing has the bundle's name before everything in it is synced and was read back, so a
death leaves DIR whole or not there. Under the temporary name bundle.json is the first file and goes last: what a
death leaves there is recognised, and nothing else is ever cleared.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from killpoints import reach
from product.collector import points_archive as points
from product.collector.bundle import (
    BUNDLE_NAME,
    SUMS_NAME,
    BundleFile,
    directories_of,
    find_foreign,
    format_sums,
)
from product.collector.errors import CollectorError, ambiguous
from product.collector.inventory import is_ordinary_directory, observe_below, path_of, read
from product.collector.layout import Layout
from product.collector.places import Unreadable
from product.durable.directories import move_directory_new, remove_directory
from product.durable.files import (
    Digest,
    digest_file,
    make_directory,
    put_new,
    remove,
    require_exactly,
    temporary_path,
)


def clear_leftover(out: Path) -> None:
    """Remove what a dead handoff left beside ``out``. Raises E_RECOVERY_AMBIGUOUS, with nothing removed, for anything else."""
    aside = temporary_path(out)
    if not os.path.lexists(aside):
        return
    if not is_ordinary_directory(aside):
        raise ambiguous(f"{aside} is there and is not a directory of ours", file=str(aside))
    found = observe_below(aside)
    description = read(aside / BUNDLE_NAME) if BUNDLE_NAME in found.files else None
    why = f"{found.others[0]} is no plain file" if found.others else None
    if isinstance(description, Unreadable):
        why = f"{BUNDLE_NAME}: {description.reason}"
    else:
        why = why or find_foreign(found.files, found.directories, description)
    if why is not None:
        raise ambiguous(f"{aside} is not a dead handoff's: {why}", file=str(aside))
    for name in sorted({*found.files} - {BUNDLE_NAME}):
        _remove_file(aside / name)
    for name in sorted(found.directories, reverse=True):
        remove_directory(aside / name, point=points.LEFTOVER_DIRECTORY)
    if description is not None:
        _remove_file(aside / BUNDLE_NAME)
    remove_directory(aside, point=points.LEFTOVER_DIRECTORY)


def _remove_file(path: Path) -> None:
    digest = digest_file(path)
    if digest is not None:
        remove(path, expected=digest, point=points.LEFTOVER_FILE)


def make_bundle(layout: Layout, out: Path, files: Sequence[BundleFile], description: bytes) -> Digest:
    """The bundle as ``out``, whole; the digest of its SHA256SUMS. ``out`` and its temporary name are free.

    Raises E_HANDOFF_EXISTS when something took the name meanwhile, and E_RECOVERY_AMBIGUOUS when a file changed under
    the copying; then ``out`` is not there.
    """
    aside = temporary_path(out)
    make_directory(aside, point=points.ASIDE)
    put_new(aside / BUNDLE_NAME, description, point=points.MARKED)
    directories = directories_of(file.name for file in files)
    for name in directories:
        make_directory(aside / name, point=points.BUNDLE_DIRECTORY)
    for file in files:
        put_new(aside / file.name, _read(layout, file), point=points.BUNDLE_FILE)
    digests = {file.name: file.digest for file in files} | {BUNDLE_NAME: Digest.of(description)}
    sums = format_sums(digests)
    put_new(aside / SUMS_NAME, sums, point=points.SUMS)
    require_whole(aside, digests | {SUMS_NAME: Digest.of(sums)}, directories)
    reach(points.VERIFIED)
    try:
        move_directory_new(aside, out, point=points.PUBLISHED)
    except FileExistsError as error:
        raise CollectorError("E_HANDOFF_EXISTS", f"{out} appeared while it was being made", out=str(out)) from error
    return Digest.of(sums)


def _read(layout: Layout, file: BundleFile) -> bytes:
    data = read(path_of(layout, file.source))
    if isinstance(data, Unreadable) or Digest.of(data) != file.digest:
        raise ambiguous(f"{file.source} changed while it was being handed over", file=file.source)
    return data


def require_whole(aside: Path, digests: Mapping[str, Digest], directories: Sequence[str]) -> None:
    """Everything is read back once more, all of it together: what is given its name is what SHA256SUMS says."""
    found = observe_below(aside)
    if {*found.files, *found.others} != {*digests} or {*found.directories} != {*directories}:
        odd = {*found.files, *found.others, *found.directories} ^ {*digests, *directories}
        raise ambiguous(f"{aside}: {', '.join(sorted(odd))} came or went while it was being filled", file=str(aside))
    for name, digest in digests.items():
        require_exactly(aside / name, digest)
