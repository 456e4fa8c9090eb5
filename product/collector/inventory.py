"""Reads everything that is ours, for ``check`` and ``handoff``: every name, and what they compare. Writes nothing.

What cannot be read as a plain file is told as Unreadable and never raised: one bad file must not hide the next. Segments
come one by one, because an archive may be larger than memory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from product.collector import observe
from product.collector.completed import CompletedRun, Copy, Volumes
from product.collector.errors import CollectorError, ambiguous
from product.collector.layout import MANIFESTS, Layout, segment_name
from product.collector.manifests import ChainBroken, Tip, names_of, read_lines
from product.collector.places import Entry, Found, Inventory, Kind, Unreadable, archived_name, is_state, place_of
from product.collector.transaction import Archive
from product.durable.errors import DurableError, VolumeMismatch
from product.durable.files import Digest, digest_file, read_file
from product.durable.paths import is_plain_name, is_reparse, require_plain_directory
from product.durable.volume import require_one_volume

_READ = {Kind.LOCK, Kind.MARKER, Kind.SLOT, Kind.DOCUMENT}
_HASHED = {Kind.QUARANTINED, Kind.EVIDENCE, Kind.ARCHIVED, Kind.OWNER}


def observe_inventory(layout: Layout) -> Inventory:
    """Raises OSError only where a directory cannot be listed."""
    entries = (*_walk(layout.state, "", True), *_walk(layout.archive, "", False))
    documents: dict[str, bytes | Unreadable] = {}
    digests: dict[str, Digest | Unreadable] = {}
    for entry in entries:
        if entry.found is not Found.FILE or entry.place is None:
            continue
        if entry.place.kind in _READ:
            documents[entry.name] = read(path_of(layout, entry.name))
        elif entry.place.kind in _HASHED:
            digests[entry.name] = _digest(path_of(layout, entry.name))
    segments = {name: _read_segments(layout, name, entries) for name in MANIFESTS}
    return Inventory(entries, documents, digests, segments)


def path_of(layout: Layout, name: str) -> Path:
    return (layout.state if is_state(name) else layout.archive) / name


def _walk(root: Path, directory: str, state: bool) -> Iterator[Entry]:
    """Every name below our own directories; at the top of a root only names that are ours. Strays are not entered."""
    with os.scandir(root / directory) as items:
        found = sorted((f"{directory}/{item.name}".lstrip("/"), item) for item in items)
    for name, item in found:
        place = place_of(name)
        if not directory and (place is None or is_state(name) is not state):
            continue
        entry = Entry(name, _found(item), place)
        yield entry
        if entry.found is Found.DIRECTORY and place is not None and place.kind is Kind.DIRECTORY:
            yield from _walk(root, name, state)


def _found(item: os.DirEntry[str]) -> Found:
    if is_reparse(item.stat(follow_symlinks=False)):
        return Found.OTHER
    if item.is_dir(follow_symlinks=False):
        return Found.DIRECTORY
    return Found.FILE if item.is_file(follow_symlinks=False) else Found.OTHER


def read(path: Path) -> bytes | Unreadable:
    """The bytes of the plain file, or why there are none."""
    try:
        data = read_file(path)
    except (DurableError, OSError) as error:
        return Unreadable(_why(error))
    return Unreadable("it was there and is gone") if data is None else data


def _digest(path: Path) -> Digest | Unreadable:
    try:
        digest = digest_file(path)
    except (DurableError, OSError) as error:
        return Unreadable(_why(error))
    return Unreadable("it was there and is gone") if digest is None else digest


def _why(error: DurableError | OSError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error.detail.get("reason", error.message))


def _read_segments(
    layout: Layout, manifest: str, entries: tuple[Entry, ...]
) -> Iterator[tuple[int, bytes | Unreadable]]:
    for entry in entries:
        place = entry.place
        if place is not None and place.kind is Kind.SEGMENT and place.parts[0] == manifest:
            is_file = entry.found is Found.FILE
            data = read(path_of(layout, entry.name)) if is_file else Unreadable(f"it is {entry.found.value}")
            yield int(place.parts[1]), data


def read_archive(layout: Layout) -> Archive:
    """As index.open_archive(), for those who may not write an index: both manifests read to the end, in memory.

    Raises E_RECOVERY_AMBIGUOUS for a manifest that is not what was appended.
    """
    posts: dict[str, str] = {}
    tip, names = Tip(), {}
    try:
        for line, after in read_lines("cards", observe.read_segments(layout, "cards")):
            keys, names[str(line.seq)] = names_of(line.fields)
            posts.update(dict.fromkeys(keys, str(line.seq)))
            tip = after
    except ChainBroken as error:
        raise observe.broken(error) from error
    except ValueError as error:
        raise ambiguous(f"cards: not a card line: {error}", file=f"cards/{segment_name(tip.segment)}") from error
    return Archive(tip, observe.observe_runs_tip(layout), posts.get, names.__getitem__)


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """What the table Move asks for, where both places are, and the digest of the evidence where one of them is exact."""

    source: Copy
    target: Copy
    volumes: Volumes
    source_path: Path
    target_path: Path
    digest: Digest | None


def observe_move(layout: Layout, run: CompletedRun) -> MoveFacts:
    source, target = layout.evidence(run.run_id), layout.archive / archived_name(run.hour, run.run_id)
    copies = [_observe_copy(root, path, run) for root, path in ((layout.state, source), (layout.archive, target))]
    there = next(parent for parent in target.parents if os.path.lexists(parent))
    try:
        require_one_volume(source.parent, there)
        volumes = Volumes.ONE
    except VolumeMismatch:
        volumes = Volumes.TWO
    digest = next((digest for _, digest in copies if digest is not None), None)
    return MoveFacts(copies[0][0], copies[1][0], volumes, source, target, digest)


def _observe_copy(root: Path, path: Path, run: CompletedRun) -> tuple[Copy, Digest | None]:
    for directory in (parent for parent in path.parents if parent.is_relative_to(root)):
        if os.path.lexists(directory) and not is_ordinary_directory(directory):
            return Copy.OTHER, None
    if not os.path.lexists(path):
        return Copy.ABSENT, None
    digest = _digest(path)
    if isinstance(digest, Unreadable) or digest.sha256 != run.evidence_sha256:
        return Copy.OTHER, None
    return Copy.EXACT, digest


def is_ordinary_directory(path: Path) -> bool:
    """Raises FileNotFoundError where nothing has that name."""
    status = os.lstat(path)
    return stat.S_ISDIR(status.st_mode) and not is_reparse(status)


def observe_completed(layout: Layout) -> dict[str, CompletedRun]:
    """The runs of the runs manifest by id, the chain proven. Raises E_RECOVERY_AMBIGUOUS for a broken one.

    Lines of schema 1 do not say what their evidence was: they are left out.
    """
    found: dict[str, CompletedRun] = {}
    try:
        for line, _ in read_lines("runs", observe.read_segments(layout, "runs")):
            if line.fields["schema_version"] != 1:
                run_id, hour, sha256 = (str(line.fields[key]) for key in ("run_id", "hour", "evidence_sha256"))
                found[run_id] = CompletedRun(run_id, hour, sha256)
    except ChainBroken as error:
        raise observe.broken(error) from error
    return found


def find_archived(layout: Layout, run_id: str) -> str | None:
    """The name of this run's evidence in the archive, whatever its month; None where it was not moved there."""
    years = layout.archive / "evidence"
    for month in sorted(years.glob("[0-9][0-9][0-9][0-9]/[0-9][0-9]")):
        if os.path.lexists(month / f"{run_id}.json"):
            return f"evidence/{month.parent.name}/{month.name}/{run_id}.json"
    return None


@dataclass(frozen=True, slots=True)
class Below:
    """Every name below a directory, relative to it; ``others`` are links, devices and the like."""

    files: tuple[str, ...]
    directories: tuple[str, ...]
    others: tuple[str, ...]


def observe_below(directory: Path) -> Below:
    """Links are not followed. Raises OSError where a directory cannot be listed."""
    names: dict[Found, list[str]] = {kind: [] for kind in Found}
    _list_below(directory, "", names)
    return Below(tuple(names[Found.FILE]), tuple(names[Found.DIRECTORY]), tuple(names[Found.OTHER]))


def _list_below(root: Path, directory: str, names: dict[Found, list[str]]) -> None:
    with os.scandir(root / directory) as items:
        for item in items:
            name, found = f"{directory}/{item.name}".lstrip("/"), _found(item)
            names[found].append(name)
            if found is Found.DIRECTORY:
                _list_below(root, name, names)


def require_target(layout: Layout, text: str) -> Path:
    """Where a bundle may go: a free name in an ordinary directory, not inside the roots.

    Raises E_INPUT, E_HANDOFF_EXISTS, or PathReparse for a parent that is no ordinary directory.
    """
    target = Path(os.path.abspath(text))
    if not is_plain_name(target.name):
        raise CollectorError("E_INPUT", f"{target.name!r} is no name for a bundle", out=str(target))
    require_plain_directory(target.parent)
    for root in (layout.state, layout.archive):
        if any(os.path.samefile(root, parent) for parent in target.parents):
            raise CollectorError("E_INPUT", f"{target} lies inside {root}", out=str(target))
    if os.path.lexists(target):
        raise CollectorError("E_HANDOFF_EXISTS", f"{target} is there already; name one that is not", out=str(target))
    return target
