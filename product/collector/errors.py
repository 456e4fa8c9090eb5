"""One error type with a code; the exit status follows from the code (SPEC.md, "Exit status")."""

from __future__ import annotations

import errno

EXIT_REFUSED = 65
EXIT_AMBIGUOUS = 70
EXIT_CANNOT_CREATE = 73
EXIT_BUSY = 75
EXIT_CONFIGURATION = 78
EXIT_INTERRUPTED = 130

EXIT_STATUS = {
    "E_EVIDENCE_SCHEMA": EXIT_REFUSED,
    "E_IDENTITY_CONFLICT": EXIT_REFUSED,
    "E_FEED": EXIT_REFUSED,
    "E_INPUT": EXIT_REFUSED,
    "E_RUN_ID_TAKEN": EXIT_REFUSED,
    "E_CHECK_FAILED": EXIT_AMBIGUOUS,
    "E_STATE_LOCKED": EXIT_BUSY,
    "E_FORMAL_LOCK_BUSY": EXIT_BUSY,
    "E_SLOT_TAKEN": EXIT_CANNOT_CREATE,
    "E_HANDOFF_EXISTS": EXIT_CANNOT_CREATE,
    "E_IO": EXIT_CANNOT_CREATE,
    "E_CONFIG": EXIT_CONFIGURATION,
    "E_PATH_REPARSE": EXIT_CONFIGURATION,
    "E_RENAME_UNSUPPORTED": EXIT_CONFIGURATION,
    "E_LOCKING_UNSUPPORTED": EXIT_CONFIGURATION,
    "E_INTERRUPTED": EXIT_INTERRUPTED,
}


class CollectorError(Exception):
    """``code``, ``message``, the table ``row`` that refused (or None) and ``detail``: what was found where.

    ``beside``: fields that stand beside these in the answer.
    """

    def __init__(self, code: str, message: str, **detail: object) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.detail = code, message, detail
        self.row: str | None = None
        self.beside: dict[str, object] = {}

    def at_row(self, row: str) -> CollectorError:
        self.row = self.row or row
        return self

    @property
    def exit_status(self) -> int:
        """The status for this code; whatever is ambiguous or unproven is 70: look first."""
        return EXIT_STATUS.get(self.code, EXIT_AMBIGUOUS)


def ambiguous(message: str, **detail: object) -> CollectorError:
    return CollectorError("E_RECOVERY_AMBIGUOUS", message, **detail)


def from_os_error(error: OSError) -> CollectorError:
    """The disk said no: nothing half done is hidden by it, the next run goes on from the phase on the disk."""
    name = errno.errorcode.get(error.errno or 0, "unknown")
    return CollectorError("E_IO", str(error), errno=name, path=str(error.filename or ""))
