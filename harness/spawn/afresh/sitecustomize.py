"""Python imports this at its start where this directory is in PYTHONPATH: a fresh interpreter begins to measure itself.

Then it is as if this file were not there: a sitecustomize of the machine's own is run in its place.
"""

import os
import sys


def _measure(order: str) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("measure", os.path.join(os.path.dirname(_HERE), "measure.py"))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        os.environ.update(module.begin(order))
    except ImportError:
        pass  # a Python without coverage.py: it leaves no data, and the report counts that


def _make_way() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = module_from_spec(spec)
        spec.loader.exec_module(module)


_HERE = os.path.dirname(os.path.abspath(__file__))
_make_way()
if os.environ.get("KILLMATRIX_COVERAGE"):
    _measure(os.environ["KILLMATRIX_COVERAGE"])
