"""One error type with a code; the exit status follows from the code (SPEC.md, "Exit status")."""

from __future__ import annotations

from product.durable.answers import COMMON_STATUS, EXIT_CANNOT_CREATE, EXIT_REFUSED, ProductError

EXIT_STATUS = {
    **COMMON_STATUS,
    "E_SITE_ID_CONFLICT": EXIT_REFUSED,
    "E_SITE_TOO_MANY": EXIT_CANNOT_CREATE,
}


class SitesError(ProductError):
    """``code``, ``message``, the table ``row`` that refused (or None) and ``detail``: what was found where."""

    STATUS = EXIT_STATUS
