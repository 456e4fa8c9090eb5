"""What every HTML page shares: its templates, and how text gets into a page without becoming part of it.

Text of the program under test reaches a page by Jinja's autoescape or as a DOM text node, never as markup, and a content
security policy that knows our one style and our one script stands behind that.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import jinja2
from markupsafe import Markup

from harness.report.output import printable


def open_templates() -> jinja2.Environment:
    """The templates beside this module. Control characters in what they print become visible; ``breakable`` is a filter."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_show,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    return environment


def _show(value: object) -> object:
    """Every value that a template prints: control characters become visible before autoescape sees them."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def breakable(text: str) -> Markup:
    """A cell id that a line may break between its parts, instead of within a word."""
    parts = re.split(r"(?<=[/>.])(?=[^/>.])", printable(text, one_line=True))
    return Markup("<wbr>").join(parts)  # which escapes each of them


def policy_hash(text: str) -> str:
    """A style or a script, as a content security policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def in_script(json_text: str) -> Markup:
    """JSON as text that may stand in a script element."""
    # "<" alone can end or comment out a script element; in JSON it only ever stands inside a string
    return Markup(json_text.replace("<", "\\u003c"))
