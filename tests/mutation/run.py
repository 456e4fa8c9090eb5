"""The run itself, started by ``__main__`` inside the copy. Mutants are cosmic-ray's and deletion.py's, tried in forks.

The tests that reach a changed line go first, those that reach most of the change at the head; then all others, or,
where the target names ``cells``, cells of the kill matrix: a protection is held by a test or by a cell.

A fork and not ``cosmic-ray exec``: most of a mutant's time would be the start of pytest, and what a failing test
leaves running is ended with the fork's session. The libraries are imported before the fork, our own modules after it.
mutmut was tried: it sees no tables and constants of a module, and its wrapper hides the caller whose literals
``declare`` looks at.
"""

from __future__ import annotations

import difflib
import importlib
import os
import random
import re
import select
import signal
import sys
import sysconfig
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.commands import init
from cosmic_ray.mutating import use_mutation
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec

from tests.mutation import deletion
from tests.mutation.reached import Reached, SomeTests, WhoReaches
from tests.mutation.targets import Change, Reason, Target, choose_targets, load_reasons, parse_arguments

# One of each kind: all the others that cosmic-ray has for an operator are noticed by what notices these.
OPERATORS = re.compile(
    r"core/(AddNot|ExceptionReplacer|NumberReplacer|RemoveDecorator|ZeroIterationForLoop"
    r"|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceTrueWithFalse|ReplaceFalseWithTrue"
    r"|ReplaceBreakWithContinue|ReplaceContinueWithBreak|ReplaceUnaryOperator_Delete_(Not|USub)"
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is|Lt_LtE|Lt_GtE|LtE_Lt|LtE_Gt|Gt_GtE|Gt_LtE|GtE_Gt|GtE_Lt)"
    r"|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_FloorDiv|FloorDiv_Mul|Div_Mul|Mod_FloorDiv|BitAnd_BitOr))"
)
PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:killmatrix")
TIMEOUT_LEAST_S = 20.0  # an endless loop ends here; a machine that is busy does not
TIMEOUT_FACTOR = 4
CELLS_S = 60.0


class Trial:
    """Runs the tests of one target, or of several that have the same, in forks, each in a session of its own."""

    def __init__(self, target: Target, log: Path) -> None:
        """Run once unchanged: measures the time, imports the libraries, raises SystemExit when a test fails."""
        self._tests, self._log, self._all_s = target.pytest_arguments, log, 900.0
        started = time.monotonic()
        libraries, reached = log.with_suffix(".libraries"), log.with_suffix(".reached")
        if self._run(lambda: self._look_on(libraries, reached), self._all_s) != 0:
            raise SystemExit(f"{target.module}: its tests fail before anything is changed\n{log.read_text()}")
        self._all_s = time.monotonic() - started
        self._reached = Reached.load(reached)
        self._failed, self._has_noticed = log.with_suffix(".failed"), Counter[str]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are imported early, which some remark on
            for name in libraries.read_text().splitlines():
                with suppress(ImportError):
                    importlib.import_module(name)

    def notices(self, spec: MutationSpec, cells: str = "") -> bool:
        """Whether a test fails now, or a cell is not green. One that does not end has noticed, too."""
        near = self._reached.tests_of(Path(spec.module_path).resolve(), spec.start_pos[0], spec.end_pos[0])
        near.sort(key=lambda test: -self._has_noticed[test])  # who noticed something near it is likely to again
        files = list(dict.fromkeys(test.partition("::")[0] for test in near))
        self._failed.unlink(missing_ok=True)
        near_s = self._reached.duration_s(near)
        if near and self._run(lambda: self._test(files, SomeTests(near, self._failed)), near_s) != 0:
            self._has_noticed.update([self._failed.read_text()] if self._failed.exists() else [])
            return True
        if near and cells:
            return self._run(lambda: self._ask(cells), CELLS_S) != 0
        others = SomeTests(near, self._failed, others=True)
        return self._run(lambda: self._test(self._tests, others), self._all_s) != 0

    def _run(self, act: Callable[[], int], expected_s: float) -> int:
        pid = os.fork()
        if pid == 0:
            self._be(act)
        pidfd = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll(1000 * max(TIMEOUT_LEAST_S, TIMEOUT_FACTOR * expected_s))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # the tests if they hang, and what they left behind
            os.close(pidfd)
            status = os.waitpid(pid, 0)[1]
        return status

    def _be(self, act: Callable[[], int]) -> NoReturn:
        status = 70
        try:
            os.setsid()
            out = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for fd in (1, 2):
                os.dup2(out, fd)
            status = act()
        finally:
            os._exit(status)

    def _look_on(self, libraries: Path, reached: Path) -> int:
        plugin = WhoReaches(reached)
        status = self._pytest(self._tests, plugin)
        libraries.write_text("\n".join(_library_names()))
        return status

    def _test(self, places: Sequence[str], chosen: SomeTests) -> int:
        # two changes within a second would look alike to whoever compares time and size
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        return self._pytest(places, chosen)

    def _ask(self, cells: str) -> int:
        from tests.mutation.cells import is_seen_by_a_cell  # it imports our own modules

        return int(is_seen_by_a_cell(cells))

    def _pytest(self, places: Sequence[str], plugin: object) -> int:
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]  # no time for shrinking
        hypothesis.settings.register_profile("mutation", phases=phases, derandomize=True, deadline=None)
        hypothesis.settings.load_profile("mutation")
        basetemp = f"--basetemp={self._log.parent / 'basetemp'}"
        return int(pytest.main([*PYTEST, basetemp, *places], [plugin]))


def _library_names() -> Iterator[str]:
    roots = tuple(sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib"))
    for name, module in sys.modules.items():
        if name != "__main__" and (getattr(module, "__file__", None) or "").startswith(roots):
            yield name


def list_mutants(target: Target, sample: int | None, seed: int) -> list[MutationSpec]:
    """The target's mutants in the order of its lines; at most ``sample`` of them."""
    chosen = list(_list_deletions(target.module))
    if not target.deletions_only:
        with use_db(":memory:") as session:
            init([Path(target.module)], session, {})
            specs = [spec for item in session.work_items for spec in item.mutations]
        chosen += [spec for spec in specs if OPERATORS.fullmatch(spec.operator_name)]
    chosen.sort(key=lambda spec: (spec.start_pos, spec.operator_name, spec.occurrence))
    if sample is not None and sample < len(chosen):
        chosen = sorted(random.Random(seed).sample(chosen, sample), key=lambda spec: spec.start_pos)
    return chosen


def _list_deletions(module: str) -> Iterator[MutationSpec]:
    operator = deletion.StatementDeletion()
    places = (at for node in ast_nodes(get_ast_from_path(Path(module))) for at in operator.mutation_positions(node))
    for occurrence, (start, end) in enumerate(places):
        yield MutationSpec(Path(module), deletion.NAME, occurrence, start, end)


def _operator_of(spec: MutationSpec) -> Operator:
    if spec.operator_name == deletion.NAME:
        return deletion.StatementDeletion()
    return get_operator(spec.operator_name)(**spec.operator_args)


def describe(spec: MutationSpec, original: str, mutated: str) -> Change:
    lines = list(difflib.unified_diff(original.splitlines(), mutated.splitlines(), lineterm="", n=0))[2:]
    before, after = (" ".join(" ".join(line[1:] for line in lines if line[0] == sign).split()) for sign in "-+")
    return Change(str(spec.module_path), spec.start_pos[0], before, after)


def try_target(target: Target, specs: Sequence[MutationSpec], trial: Trial) -> Iterator[Change]:
    """The changes that no test and no cell of the target notices, each when it is known."""
    for spec in specs:
        with use_mutation(Path(spec.module_path), _operator_of(spec), spec.occurrence) as (original, mutated):
            if not trial.notices(spec, target.cells):
                yield describe(spec, original, mutated)


def run(targets: Sequence[Target], sample: int | None, seed: int) -> int:
    reasons = load_reasons()
    used: set[tuple[Reason, str]] = set()
    total = noticed = unexplained = 0
    trials: dict[tuple[str, ...], Trial] = {}
    for target in targets:
        if target.pytest_arguments not in trials:
            log = Path("..", f"tests-{len(trials)}.log").resolve()
            trials[target.pytest_arguments] = Trial(target, log)
        trial = trials[target.pytest_arguments]
        Path(cache_from_source(target.module)).unlink(missing_ok=True)
        specs = list_mutants(target, sample, seed)
        survivors, bare = 0, 0
        for change in try_target(target, specs, trial):
            excuses = [reason for reason in reasons if reason.excuses(change)]
            used.update((reason, change.after) for reason in excuses)
            survivors, bare = survivors + 1, bare + (not excuses)
            if not excuses:
                print(f"survived  {change}", flush=True)
        print(f"{target.module:<36} {len(specs):4} changes  {len(specs) - survivors:4} noticed", end="")
        print(f"  {survivors - bare:4} with a reason  {bare:4} survived", flush=True)
        total, noticed = total + len(specs), noticed + len(specs) - survivors
        unexplained += bare
    modules = {target.module for target in targets} if sample is None else set()
    stale = [(r, after) for r in reasons if r.module in modules for after in r.after if (r, after) not in used]
    for reason, after in stale:
        print(f"stale reason  {reason.module}\n    - {reason.before}\n    + {after}")
        print("    a test notices this change by now, or the line is another one")
    due = noticed + unexplained
    print(f"{total} changes, {total - due} with a reason; score {100 * noticed / max(1, due):.1f}%")
    return 1 if unexplained or stale else 0


def main() -> int:
    asked = parse_arguments()
    try:
        return run(choose_targets(asked.parts), asked.sample, asked.seed)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
