"""What the primitives refuse. Each class has one ``code``; what they know about the case is in ``detail``.

An ``OSError`` of the system (disk full, permission denied, a name that exists) is not wrapped: it passes through as it
is, and the product that called says what it means there.
"""

from __future__ import annotations

from typing import ClassVar


class DurableError(Exception):
    """``code`` is stable text for programs, ``message`` one line for people, ``detail`` JSON values by name."""

    def __init__(self, code: str, message: str, **detail: object) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail


class _Coded(DurableError):
    CODE: ClassVar[str]

    def __init__(self, message: str, **detail: object) -> None:
        super().__init__(self.CODE, message, **detail)


class JsonRejected(_Coded):
    """``reason`` is what is wrong, ``pointer`` (RFC 6901) is where; where parsing itself stopped, the nearest place."""

    CODE = "E_JSON"

    def __init__(self, reason: str, pointer: str = "", **detail: object) -> None:
        place = pointer if len(pointer) <= 200 else f"{pointer[:200]}..."
        super().__init__(f"{place or 'document'}: {reason}", pointer=pointer, reason=reason, **detail)
        self.reason = reason
        self.pointer = pointer


class PathReparse(_Coded):
    """A root or one of its parents is not an ordinary directory: a link, a junction, another type, or missing."""

    CODE = "E_PATH_REPARSE"


class RenameUnsupported(_Coded):
    """The system or the file system has no rename that refuses to overwrite, or none that exchanges two names."""

    CODE = "E_RENAME_UNSUPPORTED"


class VolumeMismatch(_Coded):
    """Two paths are not provably on one volume."""

    CODE = "E_VOLUME_IDENTITY"


class ReadBackMismatch(_Coded):
    """What is on the disk after a write is not what was written."""

    CODE = "E_READ_BACK"


class UnexpectedContent(_Coded):
    """A file is not what the caller said it must be: other bytes, another type, or a second hard link."""

    CODE = "E_UNEXPECTED_CONTENT"


class StateLocked(_Coded):
    """Another process holds the state lock. Try again."""

    CODE = "E_STATE_LOCKED"


class StateOwnerUnproven(_Coded):
    """Metadata was left by an owner of which nobody can say whether it lives."""

    CODE = "E_STATE_OWNER_UNPROVEN"


class StateOwnerReused(_Coded):
    """Metadata was left by an owner whose process id now belongs to another process."""

    CODE = "E_STATE_OWNER_PID_REUSE"


class StateOwnerThirdContent(_Coded):
    """The state lock or its owner metadata holds something that no version of this program writes."""

    CODE = "E_STATE_OWNER_THIRD_CONTENT"


class LockingUnsupported(_Coded):
    """The file system grants one exclusive lock twice, or knows no such lock."""

    CODE = "E_LOCKING_UNSUPPORTED"
