"""One error type with a code; the exit status follows from the code (SPEC.md, "Exit status")."""

from __future__ import annotations

from product.durable.answers import (
    COMMON_STATUS,
    EXIT_AMBIGUOUS,
    EXIT_BUSY,
    EXIT_CANNOT_CREATE,
    EXIT_REFUSED,
    ProductError,
)

EXIT_INTERRUPTED = 130

EXIT_STATUS = {
    **COMMON_STATUS,
    "E_EVIDENCE_SCHEMA": EXIT_REFUSED,
    "E_IDENTITY_CONFLICT": EXIT_REFUSED,
    "E_FEED": EXIT_REFUSED,
    "E_RUN_ID_TAKEN": EXIT_REFUSED,
    "E_CHECK_FAILED": EXIT_AMBIGUOUS,
    "E_FORMAL_LOCK_BUSY": EXIT_BUSY,
    "E_SLOT_TAKEN": EXIT_CANNOT_CREATE,
    "E_HANDOFF_EXISTS": EXIT_CANNOT_CREATE,
    "E_INTERRUPTED": EXIT_INTERRUPTED,
}


class CollectorError(ProductError):
    """``code``, ``message``, the table ``row`` that refused (or None) and ``detail``: what was found where.

    ``beside``: fields that stand beside these in the answer.
    """

    STATUS = EXIT_STATUS

    def __init__(self, code: str, message: str, **detail: object) -> None:
        super().__init__(code, message, **detail)
        self.beside: dict[str, object] = {}


def ambiguous(message: str, **detail: object) -> CollectorError:
    return CollectorError("E_RECOVERY_AMBIGUOUS", message, **detail)
