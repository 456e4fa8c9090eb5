"""What a product's command answers when it cannot do what was asked: one shape and one family of exit statuses for all."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import ClassVar, Self

EXIT_REFUSED = 65
EXIT_AMBIGUOUS = 70
EXIT_CANNOT_CREATE = 73
EXIT_BUSY = 75
EXIT_CONFIGURATION = 78

COMMON_STATUS: Mapping[str, int] = {
    "E_INPUT": EXIT_REFUSED,
    "E_IO": EXIT_CANNOT_CREATE,
    "E_STATE_LOCKED": EXIT_BUSY,
    "E_CONFIG": EXIT_CONFIGURATION,
    "E_PATH_REPARSE": EXIT_CONFIGURATION,
    "E_RENAME_UNSUPPORTED": EXIT_CONFIGURATION,
    "E_LOCKING_UNSUPPORTED": EXIT_CONFIGURATION,
}


class ProductError(Exception):
    """``code``, ``message``, the table ``row`` that refused (or None) and ``detail``: what was found where.

    A product gives the statuses of its own codes in ``STATUS``.
    """

    STATUS: ClassVar[Mapping[str, int]] = COMMON_STATUS

    def __init__(self, code: str, message: str, **detail: object) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.detail = code, message, detail
        self.row: str | None = None

    def at_row(self, row: str) -> Self:
        """Name the row, unless one is named already: the first that refused is the one."""
        self.row = self.row or row
        return self

    @property
    def exit_status(self) -> int:
        """The status for this code; whatever is ambiguous, unsound or unproven is 70: look first."""
        return self.STATUS.get(self.code, EXIT_AMBIGUOUS)

    @classmethod
    def from_os_error(cls, error: OSError) -> Self:
        """The disk said no: nothing half done is hidden by it, the next command goes on from what is saved."""
        name = errno.errorcode.get(error.errno or 0, "unknown")
        return cls("E_IO", str(error), errno=name, path=str(error.filename or ""))
