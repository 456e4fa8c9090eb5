"""Reads everything that is ours, for ``check`` and ``handoff``: every name, and what they compare. Writes nothing.

What cannot be read as a plain file is told as Unreadable and never raised: one bad file must not hide the next. Segments
come one by one, because an archive may be larger than memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from product.collector import observe
from product.collector.errors import ambiguous
from product.collector.layout import MANIFESTS, Layout, segment_name
from product.collector.manifests import ChainBroken, Tip, names_of, read_lines
from product.collector.places import Entry, Found, Inventory, Kind, Unreadable, is_state, place_of
from product.collector.transaction import Archive
from product.durable.errors import DurableError
from product.durable.files import Digest, digest_file, read_file
from product.durable.paths import is_reparse

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
