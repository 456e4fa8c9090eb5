"""What a handed-over bundle is: its files, SHA256SUMS, bundle.json, and which leftover of one is ours to clear. Pure.

A bundle is the archive's formal content as ``check`` found it: the segments, and the evidence of every run at the place
that it has, or will have, in the archive. ``sha256sum -c SHA256SUMS`` in it needs nothing of this program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from product.collector.checking import Report
from product.collector.places import Inventory, Kind, archived_name, evidence_name, place_of
from product.durable import canonical
from product.durable.errors import JsonRejected
from product.durable.files import Digest

SCHEMA_VERSION = 1
BUNDLE_NAME, SUMS_NAME = "bundle.json", "SHA256SUMS"
KIND = "killmatrix-collector-bundle"
_TOPS = ("cards", "runs", "evidence")
_KEYS = {"schema_version", "kind", "tasks", "counts", "tips", "created_at"}


@dataclass(frozen=True, slots=True)
class BundleFile:
    """``name`` in the bundle, ``source`` relative to the root where it lies now, and what it must be."""

    name: str
    source: str
    digest: Digest


def plan_files(report: Report, inventory: Inventory) -> list[BundleFile]:
    """Every file of the bundle, sorted; of an archive in which ``check`` found nothing wrong."""
    files = [BundleFile(name, name, digest) for name, digest in report.contents.items()]
    for run in report.runs:
        name = archived_name(run.hour, run.run_id)
        source = name if name in inventory.digests else evidence_name(run.run_id)
        digest = inventory.digests[source]
        assert isinstance(digest, Digest), "check found nothing wrong"
        files.append(BundleFile(name, source, digest))
    return sorted(files, key=lambda file: file.name)


def describe(report: Report, files: Collection[BundleFile], created_at: str) -> bytes:
    """bundle.json, canonical. ``tips``: seq and SHA-256 of the last line of each manifest."""
    tips = {name: {"seq": seq, "sha256": sha256} for name, (seq, sha256) in report.tips.items()}
    counts = {name: report.counts[name] for name in ("cards", "runs", "segments")}
    counts |= {"evidence": len(report.runs), "files": len(files), "bytes": sum(file.digest.size for file in files)}
    return canonical.encode(
        {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "tasks": sorted({run.task_id for run in report.runs}),
            "counts": counts,
            "tips": tips,
            "created_at": created_at,
        }
    )


def format_sums(digests: Mapping[str, Digest]) -> bytes:
    """``sha256sum`` lines, sorted by name; our names need no escaping."""
    return b"".join(f"{digest.sha256}  {name}\n".encode() for name, digest in sorted(digests.items()))


def directories_of(names: Iterable[str]) -> list[str]:
    """Every directory that these names need, parents first."""
    found = {name[:index] for name in names for index, char in enumerate(name) if char == "/"}
    return sorted(found)


def is_description(data: bytes) -> bool:
    """Whether these are the bytes of a bundle.json of ours: then the directory around it is ours, too."""
    try:
        value = canonical.decode_canonical(data)
    except JsonRejected:
        return False
    return isinstance(value, dict) and value.keys() == _KEYS and value["kind"] == KIND


def find_foreign(files: Iterable[str], directories: Iterable[str], description: bytes | None) -> str | None:
    """Why what lies under the temporary name is not a dead handoff's, or None where all of it is.

    ``description`` are the bytes of bundle.json. It is written first and removed last: without it only an empty
    directory is ours, or one in which bundle.json was about to be written.
    """
    names = set(files)
    for name in sorted(names):
        if not _is_of_bundle(name):
            return f"{name} is not of a bundle"
    for name in sorted(directories):
        place = place_of(name)
        if place is None or place.kind is not Kind.DIRECTORY or name.split("/")[0] not in _TOPS:
            return f"{name}/ is not of a bundle"
    if description is not None:
        return None if is_description(description) else f"{BUNDLE_NAME} is not of ours"
    if any(directories) or not names <= {_temporary(BUNDLE_NAME)}:
        return f"there is no {BUNDLE_NAME}"
    return None


def _is_of_bundle(name: str) -> bool:
    directory, slash, last = name.rpartition("/")
    if last.startswith(".") and last.endswith(".tmp"):
        last = last[1:-4]
    target = f"{directory}{slash}{last}"
    place = place_of(target)
    return target in (BUNDLE_NAME, SUMS_NAME) or (place is not None and place.kind in (Kind.SEGMENT, Kind.ARCHIVED))


def _temporary(name: str) -> str:
    return f".{name}.tmp"
