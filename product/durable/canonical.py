"""JSON in exactly one form: RFC 8785 bytes out, strict reading in. Pure.

What the standard library lets through is refused here, with a pointer to the place: duplicate keys, any float
(``1e400`` is read as infinity), integers that a double cannot hold, lone surrogates, a byte order mark, and depth that
ends in a RecursionError. Integers may be -2**53 .. 2**53.

``json.loads`` does the parsing, at the speed of C. It knows no path, so its hooks leave a mark where the text is wrong,
and one walk over the result, which knows the path, finds marks and checks the limits. Rejected: a parser of our own
(fifty times slower), and raising in the hooks (then nobody knows where).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

import rfc8785

from product.durable.errors import JsonRejected

INTEGER_MAX = 2**53
_DIGITS_MAX = len(str(-INTEGER_MAX))


@dataclass(frozen=True, slots=True)
class Limits:
    """What a document may be at most. ``depth`` counts containers: ``[[]]`` is 2. ``keys`` counts all objects."""

    size_bytes: int = 8 * 2**20
    depth: int = 64
    keys: int = 200_000
    string_chars: int = 1_000_000


DEFAULT_LIMITS = Limits()


def encode(value: object) -> bytes:
    """The RFC 8785 bytes of ``value``: dict, list, tuple, str, int, bool, None. What it writes, decode() reads.

    Raises JsonRejected for floats, other types, keys that are not text, and everything that decode() refuses.
    """
    _require_valid(value, DEFAULT_LIMITS)
    data = _serialise(value)
    _require_size(len(data), DEFAULT_LIMITS)
    return data


def decode(data: bytes | str, *, limits: Limits = DEFAULT_LIMITS) -> Any:
    """The value of one JSON document, read strictly. Text and its UTF-8 bytes get the same verdict.

    Raises JsonRejected, and nothing else, for whatever is wrong with it.
    """
    if isinstance(data, str):
        data = _to_bytes(data, limits)
    _require_size(len(data), limits)
    text = _to_text(data, limits)
    value = _parse(text, limits)
    _require_valid(value, limits)
    return value


def decode_canonical(data: bytes, *, limits: Limits = DEFAULT_LIMITS) -> Any:
    """As decode(), and the bytes must be exactly the ones that encode() writes. Raises JsonRejected."""
    value = _read_at_once(data, limits)
    if value is not _DOUBT:
        return value
    value = decode(data, limits=limits)
    if _serialise(value) != data:
        raise JsonRejected("not canonical bytes (RFC 8785)")
    return value


# ------------------------------------------------------------------------------------- what is beyond doubt, fast

_DOUBT = object()


class _Doubt(ValueError):
    """Raised by a hook: the careful way finds out what is wrong, and where."""


def _doubt(_text: str) -> NoReturn:
    raise _Doubt


def _plain_integer(text: str) -> int:
    if len(text) >= _DIGITS_MAX - 1:
        raise _Doubt
    return int(text)


_AT_ONCE = json.JSONDecoder(parse_int=_plain_integer, parse_float=_doubt, parse_constant=_doubt)
_ASCII_WRITER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _read_at_once(data: bytes, limits: Limits) -> Any:
    """The value of bytes that come out again exactly as they went in, or _DOUBT. A process reads its own records dozens
    of times: parsing and writing at the speed of C proves all that the walk would, where nothing is out of the ordinary.

    A duplicate key, white space, another order, an escape that is not due and a lone surrogate do not come out as they
    went in; numbers doubt themselves; depth and counts are bounded by the containers and bytes there are.
    """
    if len(data) > min(limits.size_bytes, limits.string_chars, limits.keys) or not data.isascii():
        return _DOUBT
    if data.count(b"{") + data.count(b"[") > limits.depth:
        return _DOUBT
    text = data.decode("ascii")
    try:
        value = _AT_ONCE.decode(text)
        return value if _ASCII_WRITER.encode(value) == text else _DOUBT
    except ValueError:
        return _DOUBT


# ---------------------------------------------------------------------------------------------- bytes and text


def _require_size(size_bytes: int, limits: Limits) -> None:
    if size_bytes > limits.size_bytes:
        raise JsonRejected(f"too large: {size_bytes} bytes, at most {limits.size_bytes}")


def _to_bytes(text: str, limits: Limits) -> bytes:
    _require_size(len(text), limits)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise JsonRejected("lone surrogate", _pointer_at(text[: error.start], limits)) from None


def _to_text(data: bytes, limits: Limits) -> str:
    if data.startswith(b"\xef\xbb\xbf"):
        raise JsonRejected("starts with a byte order mark (BOM)")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise JsonRejected("starts with a byte order mark (BOM) of UTF-16 or UTF-32; UTF-8 is required")
    if b"\0" in data[:4]:  # a block that was allocated and never written, or UTF-16 without a mark
        raise JsonRejected("starts with NUL bytes: never written, or not UTF-8")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        pointer = _pointer_at(data[: error.start].decode(), limits)
        raise JsonRejected(f"not UTF-8 at byte {error.start}", pointer) from None


# ----------------------------------------------------------------------------------------------------- parsing


class _Mark:
    """Left by a hook in the place of a value: the text there is wrong. ``key`` where the fault is at a key."""

    __slots__ = ("key", "reason")

    def __init__(self, reason: str, key: str | None = None) -> None:
        self.reason = reason
        self.key = key


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Mark:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            break
        seen.add(key)
    return _Mark("duplicate key", key)


def _integer(text: str) -> int | _Mark:
    # the length first: 5,000 digits are never converted (quadratic, and a ValueError of its own since 3.11)
    if len(text) <= _DIGITS_MAX:
        value = int(text)
        if -INTEGER_MAX <= value <= INTEGER_MAX:
            return value
    return _Mark("integer outside -2**53 .. 2**53")


def _no_float(text: str) -> _Mark:
    return _Mark("a number with fraction or exponent")


def _no_constant(text: str) -> _Mark:
    return _Mark(f"{text} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_no_float, parse_constant=_no_constant
)


def _parse(text: str, limits: Limits) -> Any:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        reason = f"not JSON: {error.msg} at character {error.pos}"
        raise JsonRejected(reason, _pointer_at(text[: error.pos], limits)) from None
    except RecursionError:  # the parser's own guard, in every Python; never a crash
        raise JsonRejected(_too_deep(limits), _pointer_at(text, limits)) from None


def _too_deep(limits: Limits) -> str:
    return f"nested too deep, at most {limits.depth}"


# ---------------------------------------------------------------------------------------------- the walk, the path


class _Wrong(Exception):
    """On its way up from the place of the fault; every level adds the token that leads there."""

    def __init__(self, reason: str, *tokens: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.tokens = list(tokens)


def _require_valid(value: object, limits: Limits) -> None:
    try:
        _Walk(limits).visit(value, 0)
    except _Wrong as wrong:
        raise JsonRejected(wrong.reason, _pointer(reversed(wrong.tokens))) from None
    except RecursionError:  # limits.depth beyond what the stack of this process has left
        raise JsonRejected(_too_deep(limits)) from None


class _Walk:
    """Every value once, in the order of the document. Recursion ends at ``limits.depth``."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._keys = 0

    def visit(self, value: object, depth: int) -> None:
        if isinstance(value, str):
            self._require_text(value, "string")
        elif value is None or isinstance(value, bool):
            return
        elif isinstance(value, int):
            if not -INTEGER_MAX <= value <= INTEGER_MAX:
                raise _Wrong("integer outside -2**53 .. 2**53")
        elif isinstance(value, (dict, list, tuple)):
            if depth >= self._limits.depth:
                raise _Wrong(_too_deep(self._limits))
            if isinstance(value, dict):
                self._visit_object(value, depth + 1)
            else:
                self._visit_array(value, depth + 1)
        else:
            _refuse(value)

    def _visit_object(self, value: dict[Any, object], depth: int) -> None:
        self._keys += len(value)
        if self._keys > self._limits.keys:
            raise _Wrong(f"too many keys, at most {self._limits.keys}")
        for key in value:
            if not isinstance(key, str):
                raise _Wrong(f"key {key!r} is not text")
            self._require_text(key, "key")
        for key, child in value.items():
            try:
                self.visit(child, depth)
            except _Wrong as wrong:
                wrong.tokens.append(key)
                raise

    def _visit_array(self, value: list[object] | tuple[object, ...], depth: int) -> None:
        for index, child in enumerate(value):
            try:
                self.visit(child, depth)
            except _Wrong as wrong:
                wrong.tokens.append(str(index))
                raise

    def _require_text(self, text: str, what: str) -> None:
        if len(text) > self._limits.string_chars:
            raise _Wrong(f"{what} too long: {len(text)} characters, at most {self._limits.string_chars}")
        if text.isascii():
            return
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _Wrong(f"lone surrogate in {what} {text[:60]!a}") from None


def _refuse(value: object) -> NoReturn:
    if isinstance(value, _Mark):
        raise _Wrong(value.reason, *([] if value.key is None else [value.key]))
    if isinstance(value, float):
        raise _Wrong("a float")
    raise _Wrong(f"{type(value).__name__} is not a JSON type")


def _pointer(tokens: Any) -> str:
    text = "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)
    return text.encode("utf-8", "backslashreplace").decode()  # a pointer can always be printed


_TOKEN = r'"(?P<key>[^"\\]*(?:\\.[^"\\]*)*)"?|[\[\]{},]'  # compiled when first needed, which is seldom


def _pointer_at(text: str, limits: Limits) -> str:
    """The pointer to where ``text`` ends, or to where it first goes deeper than allowed. For faults only: slow."""
    path: list[int | str | None] = []  # an array's index, an object's key, None before its next key
    for match in re.finditer(_TOKEN, text, re.DOTALL):
        token = match.group()
        if token in ("[", "{"):
            if len(path) >= limits.depth:
                break
            path.append(0 if token == "[" else None)
        elif not path:
            continue
        elif token in ("]", "}"):
            path.pop()
        elif token == ",":
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
        elif path[-1] is None:
            path[-1] = _unescape(match["key"])
    return _pointer(str(token) for token in path if token is not None)


def _unescape(key: str) -> str:
    try:
        return str(json.loads(f'"{key}"', strict=False))
    except ValueError:
        return key


# ------------------------------------------------------------------------------------------------------ writing


def _serialise(value: Any) -> bytes:
    """The bytes of a valid value. In ASCII the standard library's writer does the same as rfc8785 (held by a property
    test) ten times faster; beyond it the order of keys and the escapes are rfc8785's business."""
    text = _ASCII_WRITER.encode(value)
    if text.isascii():
        return text.encode("ascii")
    try:
        return rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:  # rfc8785 stops one short of 2**53, which a double holds exactly
        return rfc8785.dumps(_with_edges_as_doubles(value))


def _with_edges_as_doubles(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_edges_as_doubles(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_edges_as_doubles(child) for child in value]
    if isinstance(value, int) and abs(value) == INTEGER_MAX:
        return float(value)
    return value
