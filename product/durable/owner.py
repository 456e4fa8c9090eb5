"""The metadata beside the state lock: what it must look like, and what each kind of leftover allows.

Who gets the kernel lock may find metadata that somebody left. One row each says what then happens (collector.md
section 2; everything but S1 to S3 is a safety stop that changes nothing):

====  ========  ============  ==================================================================================
row   metadata  its owner     only action
====  ========  ============  ==================================================================================
S1    ABSENT    -             write ours
S2    EXACT     DEAD          move it to quarantine by a rename that never overwrites, then write ours
S3    EXACT     SELF          replace it by ours: an earlier release of this process did not get to its end
S4    EXACT     ALIVE         refuse, E_STATE_LOCKED: the lock file was replaced, or the lock is not seen everywhere
S5    EXACT     REUSED        refuse, E_STATE_OWNER_PID_REUSE
S6    EXACT     UNPROVEN      refuse, E_STATE_OWNER_UNPROVEN
S7    THIRD     -             refuse, E_STATE_OWNER_THIRD_CONTENT
S8    any other state         refuse, E_STATE_OWNER_UNPROVEN: it cannot be, so nothing is proven
====  ========  ============  ==================================================================================
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from product.durable import canonical, identity
from product.durable.errors import (
    JsonRejected,
    StateLocked,
    StateOwnerReused,
    StateOwnerThirdContent,
    StateOwnerUnproven,
    UnexpectedContent,
)
from product.durable.identity import ProcessIdentity
from product.durable.paths import is_plain_name
from product.durable.plain import Digest, read_file
from product.durable.table import Row, Table

SCHEMA_VERSION = 1
_SIZE_MAX_BYTES = 4096
_KEYS = {"schema_version", "pid", "process_created_at", "run_id", "acquired_at"}
_INSTANT = re.compile(r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\.[0-9]{6}Z")


class Metadata(Enum):
    """What is at the metadata's path. THIRD: anything that no version of this program writes."""

    ABSENT = "absent"
    EXACT = "exact schema"
    THIRD = "third content"


class Owner(Enum):
    """What is proven about the process that exact metadata names: a Holder, or that nobody was asked about."""

    SELF = "SELF"
    ALIVE = "ALIVE"
    DEAD = "DEAD"
    REUSED = "REUSED"
    UNPROVEN = "UNPROVEN"
    NOT_ASKED = "-"


class OwnerAction(Enum):
    WRITE = "write"
    QUARANTINE = "move to quarantine, then write"
    REPLACE = "replace"
    REFUSE_LOCKED = "refuse, locked"
    REFUSE_REUSED = "refuse, pid reused"
    REFUSE_UNPROVEN = "refuse, unproven"
    REFUSE_THIRD = "refuse, third content"


OWNER_TABLE: Table[OwnerAction] = Table(
    {"metadata": Metadata, "owner": Owner},
    (
        Row("S1", {"metadata": Metadata.ABSENT, "owner": Owner.NOT_ASKED}, OwnerAction.WRITE),
        Row("S2", {"metadata": Metadata.EXACT, "owner": Owner.DEAD}, OwnerAction.QUARANTINE),
        Row("S3", {"metadata": Metadata.EXACT, "owner": Owner.SELF}, OwnerAction.REPLACE),
        Row("S4", {"metadata": Metadata.EXACT, "owner": Owner.ALIVE}, OwnerAction.REFUSE_LOCKED),
        Row("S5", {"metadata": Metadata.EXACT, "owner": Owner.REUSED}, OwnerAction.REFUSE_REUSED),
        Row("S6", {"metadata": Metadata.EXACT, "owner": Owner.UNPROVEN}, OwnerAction.REFUSE_UNPROVEN),
        Row("S7", {"metadata": Metadata.THIRD, "owner": Owner.NOT_ASKED}, OwnerAction.REFUSE_THIRD),
        Row("S8", None, OwnerAction.REFUSE_UNPROVEN),
    ),
)


@dataclass(frozen=True, slots=True)
class OwnerObserved:
    """What lies at the metadata's path. ``record`` and ``digest`` with EXACT, ``reason`` with THIRD."""

    metadata: Metadata
    owner: Owner
    record: dict[str, Any] | None = None
    digest: Digest | None = None
    reason: str = ""


def format_owner(process: ProcessIdentity, run_id: str) -> bytes:
    """The canonical metadata of ``process`` holding the lock as of now. The time is for people, nothing rests on it."""
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    acquired_at = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds // 1000:06d}Z"
    return canonical.encode(
        {
            "schema_version": SCHEMA_VERSION,
            "pid": process.pid,
            "process_created_at": process.created_at,
            "run_id": run_id,
            "acquired_at": acquired_at,
        }
    )


def read_owner(path: Path) -> OwnerObserved:
    """Read the metadata without asking about its owner (``NOT_ASKED``). Raises OSError where it cannot be read."""
    try:
        data = read_file(path, size_max_bytes=_SIZE_MAX_BYTES)
        if data is None:
            return OwnerObserved(Metadata.ABSENT, Owner.NOT_ASKED)
        record = canonical.decode_canonical(data)
    except UnexpectedContent as error:
        return OwnerObserved(Metadata.THIRD, Owner.NOT_ASKED, reason=str(error.detail["reason"]))
    except JsonRejected as error:
        return OwnerObserved(Metadata.THIRD, Owner.NOT_ASKED, reason=error.message)
    fault = find_fault(record)
    if fault is not None:
        return OwnerObserved(Metadata.THIRD, Owner.NOT_ASKED, reason=fault)
    return OwnerObserved(Metadata.EXACT, Owner.NOT_ASKED, record, Digest.of(data))


def observe_owner(path: Path) -> OwnerObserved:
    """Read the metadata and ask, now, about the process it names. Raises OSError where it cannot be read."""
    seen = read_owner(path)
    if seen.record is None:
        return seen
    holder = identity.classify_holder(seen.record["pid"], seen.record["process_created_at"])
    return OwnerObserved(seen.metadata, Owner(holder.value), seen.record, seen.digest)


def find_fault(record: object) -> str | None:
    """Why ``record`` is not exactly schema 1, or None. A bool is no number anywhere in it."""
    if not isinstance(record, dict):
        return "not an object"
    if record.keys() != _KEYS:
        return f"keys {sorted(record)}, not {sorted(_KEYS)}"
    version, instant = record["schema_version"], record["acquired_at"]
    if type(version) is not int or version != SCHEMA_VERSION:
        return f"schema_version {version!r}, not {SCHEMA_VERSION}"
    if not identity.is_wellformed(record["pid"], record["process_created_at"]):
        return "pid or process_created_at is malformed"
    if not is_plain_name(record["run_id"]):
        return "run_id is malformed"
    if not isinstance(instant, str) or _INSTANT.fullmatch(instant) is None:
        return "acquired_at is malformed"
    return None


def refuse_owner(path: Path, seen: OwnerObserved, row: Row[OwnerAction]) -> Exception:
    """The error of a refusing row, for the caller to raise: it names the file, the row and what was found."""
    detail = {"path": str(path), "row": row.label, "owner": seen.record, "reason": seen.reason}
    match row.action:
        case OwnerAction.REFUSE_LOCKED:
            return StateLocked(f"{path} names a process that lives, though the kernel lock was free", **detail)
        case OwnerAction.REFUSE_REUSED:
            return StateOwnerReused(f"{path} names a process id that is another process now", **detail)
        case OwnerAction.REFUSE_THIRD:
            return StateOwnerThirdContent(f"{path} is not metadata of this program: {seen.reason}", **detail)
        case _:
            return StateOwnerUnproven(f"{path} names a process of which nothing is proven", **detail)
