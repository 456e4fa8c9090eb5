"""What a name in a directory of ours is: every path that the layout can make, and what was found there. Pure.

Names are relative to the root they lie in, with ``/``. At the top of either root only our own names are ours; below
them everything is, and what has no place here is a stray.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from product.collector.layout import LOCK_NAME, MANIFESTS, MARKER_NAME, QUARANTINE_NAME
from product.collector.shape import NAME
from product.durable.files import Digest

OWNERS = ".collector.lock.owner.quarantine"
_STATE_TOPS = ("refresh", OWNERS)
_ARCHIVE_TOPS = (*MANIFESTS, ".candidates", QUARANTINE_NAME, "evidence")
PENDING, LATEST, LEFTOVERS = "refresh/pending.json", "refresh/latest.json", "refresh/leftovers.json"
MARKER = f"{QUARANTINE_NAME}/{MARKER_NAME}"


class Kind(Enum):
    LOCK = "the formal lock"
    SEGMENT = "a manifest's segment"
    CANDIDATE = "a candidate"
    MARKER = "the quarantine's marker"
    QUARANTINED = "a quarantined lock"
    ARCHIVED = "a run's evidence in the archive"
    EVIDENCE = "a run's evidence in the state root"
    SLOT = "an hour's terminal record"
    DOCUMENT = "pending, latest or leftovers"
    INDEX = "the derived index"
    OWNER = "a dead owner's metadata"
    TEMPORARY = "the temporary file of one of these"
    DIRECTORY = "a directory"


@dataclass(frozen=True, slots=True)
class Place:
    """``parts`` by kind: SEGMENT (manifest, number), EVIDENCE (run id), ARCHIVED (year, month, run id), SLOT (number),
    OWNER (sha256)."""

    kind: Kind
    parts: tuple[str, ...] = ()


class Found(Enum):
    """What lies at a name; links are not followed."""

    FILE = "a file"
    DIRECTORY = "a directory"
    OTHER = "a link, a device or the like"


@dataclass(frozen=True, slots=True)
class Entry:
    """``name`` is relative to its root; ``place`` is None for a stray."""

    name: str
    found: Found
    place: Place | None


@dataclass(frozen=True, slots=True)
class Unreadable:
    reason: str


@dataclass(frozen=True, slots=True)
class Inventory:
    """``documents``: bytes of the small files by name. ``digests``: of those that are only compared.

    ``segments``: by manifest, number and bytes in the order of the numbers; to be read once.
    """

    entries: tuple[Entry, ...]
    documents: Mapping[str, bytes | Unreadable]
    digests: Mapping[str, Digest | Unreadable]
    segments: Mapping[str, Iterator[tuple[int, bytes | Unreadable]]]


_RUN = "(?P<run>[^/]+)"  # and it must be a NAME
_MONTH = r"evidence/([0-9]{4})/(0[1-9]|1[0-2])"
_WRITTEN = (  # put in place by way of a temporary file
    (Kind.LOCK, re.escape(LOCK_NAME)),
    (Kind.CANDIDATE, rf"\.candidates/(?:{'|'.join(MANIFESTS)})\.jsonl"),
    (Kind.MARKER, re.escape(MARKER)),
    (Kind.ARCHIVED, rf"{_MONTH}/{_RUN}\.json"),
    (Kind.EVIDENCE, rf"refresh/runs/{_RUN}/evidence\.json"),
    (Kind.SLOT, r"refresh/slots/(0[0-9]{2}|1[0-5][0-9]|16[0-7])\.json"),
    (Kind.DOCUMENT, "|".join(map(re.escape, (PENDING, LATEST, LEFTOVERS)))),
)
_OTHER = (
    (Kind.SEGMENT, rf"({'|'.join(MANIFESTS)})/(?!000000)([0-9]{{6}})\.jsonl"),
    (Kind.QUARANTINED, rf"{re.escape(QUARANTINE_NAME)}/[^/]+\.json"),
    (Kind.INDEX, r"refresh/index\.sqlite(?:-journal)?"),
    (Kind.OWNER, rf"{re.escape(OWNERS)}/([0-9a-f]{{64}})\.json"),
    (Kind.DIRECTORY, "|".join(map(re.escape, (*_STATE_TOPS, *_ARCHIVE_TOPS)))),
    (Kind.DIRECTORY, rf"refresh/slots|refresh/runs(?:/{_RUN})?|evidence/[0-9]{{4}}|{_MONTH}"),
)


def _compiled(places: tuple[tuple[Kind, str], ...]) -> tuple[tuple[Kind, re.Pattern[str]], ...]:
    return tuple((kind, re.compile(pattern)) for kind, pattern in places)


_WRITTEN_PLACES = _compiled(_WRITTEN)
_PLACES = (*_WRITTEN_PLACES, *_compiled(_OTHER))


def place_of(name: str) -> Place | None:
    """The place that this name is due to be, whatever lies there now; None for a stray."""
    directory, _, last = name.rpartition("/")
    if last.startswith(".") and last.endswith(".tmp"):
        target = f"{directory}/{last[1:-4]}".lstrip("/")
        return _match(_WRITTEN_PLACES, target) and Place(Kind.TEMPORARY)
    return _match(_PLACES, name)


def _match(places: tuple[tuple[Kind, re.Pattern[str]], ...], name: str) -> Place | None:
    for kind, pattern in places:
        match = pattern.fullmatch(name)
        if match and NAME.fullmatch(match.groupdict().get("run") or "run"):
            return Place(kind, tuple(part for part in match.groups() if part is not None))
    return None


def archived_name(hour: str, run_id: str) -> str:
    """Where the evidence of a run of that hour goes, relative to the archive root."""
    return f"evidence/{hour[:4]}/{hour[5:7]}/{run_id}.json"


def evidence_name(run_id: str) -> str:
    """Where it lies before, relative to the state root."""
    return f"refresh/runs/{run_id}/evidence.json"


def is_state(name: str) -> bool:
    """Whether the name is relative to the state root; all others are to the archive root."""
    return name.split("/", 1)[0] in _STATE_TOPS


def slot_name(number: int) -> str:
    return f"refresh/slots/{number:03d}.json"
