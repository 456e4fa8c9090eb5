"""Which commands can be forked from a warm server, and what such a server reads and imports beforehand.

Never the program itself: only what the import statements at the top level of its source name. A program whose imports
fail, end the process or start a thread is *cold*: it does so in a process of its own, started afresh.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType
from typing import Any, Literal, NamedTuple


class Program(NamedTuple):
    """``python -m NAME`` (a module or a package) or ``python NAME`` (an absolute path)."""

    kind: Literal["module", "script"]
    name: str


class ColdError(Exception):
    """The program is not one that a warm server can fork; the message says why."""


# Read by the interpreter, the C library or a start-up hook before any code of the program runs
_READ_AT_START = ("PYTHON", "LD_", "LC_", "MALLOC_", "GLIBC_", "COVERAGE_")
_READ_AT_START_NAMES = frozenset({"LANG", "LANGUAGE", "TZ"})


def name_program(argv: Sequence[str], cwd: str, env: Mapping[str, str], project: str) -> Program | None:
    """The program that ``argv`` runs, if a server may fork it; None: start it afresh.

    A script outside ``project`` is started afresh: scripts that a set-up writes into each sandbox would otherwise
    get a server each. A module is looked for in ``project`` and PYTHONPATH; one that is only in the working directory
    turns out to be cold.
    """
    if len(argv) < 2 or argv[0] not in ("python", sys.executable) or any(map(_is_read_at_start, env)):
        return None
    if argv[1] == "-m":
        return Program("module", argv[2]) if len(argv) > 2 else None
    if argv[1].startswith("-"):
        return None
    path = os.path.abspath(os.path.join(cwd, argv[1]))
    return Program("script", path) if path.startswith(os.path.join(project, "")) else None


def _is_read_at_start(name: str) -> bool:
    return name.startswith(_READ_AT_START) or name in _READ_AT_START_NAMES


class Loaded(NamedTuple):
    """A program that is ready to run: its code object and the names that Python gives to its ``__main__`` module."""

    code: CodeType
    source: str | None
    package: str
    attributes: Mapping[str, Any]


def load_program(program: Program) -> Loaded:
    """Find the program's code. Imports the parent packages of a module, as Python does. Raises what importing raises."""
    return _load_module(program.name) if program.kind == "module" else _load_script(program.name)


def _load_module(name: str) -> Loaded:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = importlib.util.find_spec(name)
    code = _call(spec, "get_code", name)
    if spec is None or code is None:
        raise ColdError(f"no module {name} with code is found without the working directory")
    attributes = {
        "__file__": spec.origin,
        "__cached__": spec.cached,
        "__loader__": spec.loader,
        "__package__": spec.parent,
        "__spec__": spec,
    }
    return Loaded(code, _call(spec, "get_source", name), spec.parent or "", attributes)


def _call(spec: ModuleSpec | None, method: str, name: str) -> Any:
    function = getattr(spec.loader, method, None) if spec is not None else None
    return function(name) if function is not None else None


def _load_script(path: str) -> Loaded:
    loader = SourceFileLoader("__main__", path)
    data = loader.get_data(path)
    code = compile(data, path, "exec", dont_inherit=True)
    attributes = {"__file__": path, "__cached__": None, "__loader__": loader, "__package__": None, "__spec__": None}
    return Loaded(code, importlib.util.decode_source(data), "", attributes)


def import_beforehand(loaded: Loaded, modules: Sequence[str]) -> None:
    """Import what the program's top-level import statements name, then ``modules``. Raises what importing raises."""
    if loaded.source is not None:
        for name, members in _imports_named(ast.parse(loaded.source), loaded.package):
            module = importlib.import_module(name)
            for member in members:
                if not hasattr(module, member) and hasattr(module, "__path__"):
                    importlib.import_module(f"{name}.{member}")
    for name in modules:
        importlib.import_module(name)


def _imports_named(tree: ast.Module, package: str) -> Iterator[tuple[str, list[str]]]:
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.name, []
        elif isinstance(statement, ast.ImportFrom):
            dotted = "." * statement.level + (statement.module or "")
            name = importlib.util.resolve_name(dotted, package) if statement.level else dotted
            yield name, [alias.name for alias in statement.names if alias.name != "*"]


def warm_up(program: Program, modules: Sequence[str], project: str) -> Loaded:
    """Make this process one that ``program`` can be forked from. Raises ColdError where it cannot."""
    if not sys.flags.safe_path:
        sys.path[0] = project if program.kind == "module" else os.path.dirname(os.path.realpath(program.name))
    try:
        loaded = load_program(program)
        import_beforehand(loaded, modules)
    except ColdError:
        raise
    except BaseException as error:  # SystemExit too: whatever it is, it belongs into the program's own process
        raise ColdError(f"its imports raise {type(error).__name__}: {error}") from error
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        raise ColdError(f"its imports start {threads - 1} thread(s), which a fork would not have")
    return loaded
