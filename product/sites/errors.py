"""One error type with a code; the exit status follows from the code (SPEC.md, "Exit status")."""

from __future__ import annotations

import errno

EXIT_REFUSED = 65
EXIT_AMBIGUOUS = 70
EXIT_CANNOT_CREATE = 73
EXIT_BUSY = 75
EXIT_CONFIGURATION = 78

EXIT_STATUS = {
    "E_INPUT": EXIT_REFUSED,
    "E_SITE_ID_CONFLICT": EXIT_REFUSED,
    "E_IO": EXIT_CANNOT_CREATE,
    "E_SITE_TOO_MANY": EXIT_CANNOT_CREATE,
    "E_STATE_LOCKED": EXIT_BUSY,
    "E_CONFIG": EXIT_CONFIGURATION,
    "E_PATH_REPARSE": EXIT_CONFIGURATION,
    "E_RENAME_UNSUPPORTED": EXIT_CONFIGURATION,
    "E_LOCKING_UNSUPPORTED": EXIT_CONFIGURATION,
}


class SitesError(Exception):
    """``code``, ``message``, the table ``row`` that refused (or None) and ``detail``: what was found where."""

    def __init__(self, code: str, message: str, **detail: object) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.detail = code, message, detail
        self.row: str | None = None

    def at_row(self, row: str) -> SitesError:
        self.row = row
        return self

    @property
    def exit_status(self) -> int:
        """The status for this code; whatever is ambiguous or unsound is 70: look first."""
        return EXIT_STATUS.get(self.code, EXIT_AMBIGUOUS)


def from_os_error(error: OSError) -> SitesError:
    """The disk said no: nothing half done is hidden by it, the next command goes on from what is saved."""
    name = errno.errorcode.get(error.errno or 0, "unknown")
    return SitesError("E_IO", str(error), errno=name, path=str(error.filename or ""))
