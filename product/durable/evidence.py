"""What a consumer knows about its file: the evidence in its effect's document, and its cursor. See product.durable.cursor."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from product.durable import canonical
from product.durable.errors import JsonRejected
from product.durable.lines import read_at
from product.durable.plain import Digest

PROOF_BYTES = 4096
SCHEMA = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]{1,40}")


@dataclass(frozen=True, slots=True)
class Identity:
    """One history of one file, as far as it was applied: what it is called inside the system, and how it begins and ends.

    ``head`` and ``tail`` are of the first and the last PROOF_BYTES before ``applied``, or of as many as there are.
    Numbers are text: an inode may have 64 bits, a number of JSON has 53.
    """

    device: str
    inode: str
    head: Digest
    tail: Digest


@dataclass(frozen=True, slots=True)
class Evidence:
    """What makes a second reading harmless: every line of this epoch that ends at ``applied`` or before has its effect."""

    epoch: int
    applied: int
    identity: Identity

    def as_fields(self) -> dict[str, Any]:
        """For the effect's document, at its top level."""
        identity = self.identity
        return {
            "epoch": self.epoch,
            "applied": self.applied,
            "file": {
                "device": identity.device,
                "inode": identity.inode,
                "head": {"size": identity.head.size, "sha256": identity.head.sha256},
                "tail": {"size": identity.tail.size, "sha256": identity.tail.sha256},
            },
        }


EVIDENCE_FIELDS = frozenset({"epoch", "applied", "file"})


def parse_evidence(document: Mapping[str, Any]) -> Evidence:
    """The evidence in an effect's document. Raises JsonRejected with the place."""
    file = require_object(document.get("file"), "/file", {"device", "inode", "head", "tail"})
    for name in ("device", "inode"):
        if not isinstance(file[name], str) or not _NUMBER.fullmatch(file[name]):
            raise JsonRejected("not a number written as text", f"/file/{name}")
    identity = Identity(file["device"], file["inode"], *(_parse_digest(file[name], name) for name in ("head", "tail")))
    epoch = require_whole(document.get("epoch"), "/epoch", least=1)
    applied = require_whole(document.get("applied"), "/applied")
    if identity.head.size != min(applied, PROOF_BYTES) or identity.tail.size != identity.head.size:
        raise JsonRejected("the proof is not of the bytes before /applied", "/file/head/size")
    return Evidence(epoch, applied, identity)


def _parse_digest(value: object, name: str) -> Digest:
    digest = require_object(value, f"/file/{name}", {"size", "sha256"})
    if not isinstance(digest["sha256"], str) or not _SHA256.fullmatch(digest["sha256"]):
        raise JsonRejected("not a SHA-256", f"/file/{name}/sha256")
    return Digest(require_whole(digest["size"], f"/file/{name}/size"), digest["sha256"])


@dataclass(frozen=True, slots=True)
class Position:
    """The cursor: read next at ``offset`` of ``epoch``."""

    epoch: int
    offset: int

    def format(self) -> bytes:
        return canonical.encode({"schema": SCHEMA, "epoch": self.epoch, "offset": self.offset})


def parse_position(data: bytes) -> Position:
    """Raises JsonRejected for everything but the exact bytes of a position."""
    document = require_object(canonical.decode_canonical(data), "", {"schema", "epoch", "offset"})
    if require_whole(document["schema"], "/schema") != SCHEMA:
        raise JsonRejected(f"not schema {SCHEMA}", "/schema")
    return Position(require_whole(document["epoch"], "/epoch", least=1), require_whole(document["offset"], "/offset"))


def require_object(value: object, pointer: str, keys: set[str]) -> dict[str, Any]:
    """``value``, an object of exactly these keys. Raises JsonRejected."""
    if not isinstance(value, dict):
        raise JsonRejected("not an object", pointer)
    if value.keys() != keys:
        raise JsonRejected(f"has the keys {sorted(value)}, not {sorted(keys)}", pointer)
    return value


def require_whole(value: object, pointer: str, *, least: int = 0) -> int:
    """``value``, a whole number of at least ``least``; a bool is none. Raises JsonRejected."""
    if type(value) is not int or value < least:
        raise JsonRejected(f"not a whole number of at least {least}", pointer)
    return value


def observe_identity(source: int, applied: int) -> Identity:
    """Of the open file, up to ``applied``; where the file ends before that, the digests are of other bytes."""
    status = os.fstat(source)
    size = min(applied, PROOF_BYTES)
    head, tail = _digest_at(source, 0, size), _digest_at(source, applied - size, size)
    return Identity(str(status.st_dev), str(status.st_ino), head, tail)


def _digest_at(source: int, offset: int, size: int) -> Digest:
    found = hashlib.sha256()
    end = offset + size
    while offset < end and (data := read_at(source, offset, end - offset)):
        found.update(data)
        offset += len(data)
    return Digest(size - (end - offset), found.hexdigest())
