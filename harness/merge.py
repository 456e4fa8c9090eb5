"""The shards of one plan as one run. Whatever does not fit together keeps it from being a pass (harness.md, "Bigger")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.fingerprint import differing
from harness.model import CellResult, Run, Shard
from harness.plan import fingerprint_shards
from harness.report.tally import worst


class MergeError(ValueError):
    """These runs are no shards: there is nothing to merge."""


def merge_shards(named: Sequence[tuple[str, Run]]) -> Run:
    """One run of all of them, each with the name to call it by (its file). Raises MergeError for a run that is no shard.

    The order does not matter. A shard that is missing or there twice, a cell that is in two shards or in none, and a
    shard of another plan, or of other code, are :attr:`harness.model.Run.problems`.
    """
    shards = []
    for name, run in named:
        if run.shard is None:
            raise MergeError(f"{name} is no shard (killmatrix run --shard I/N --json FILE): only shards are merged")
        shards.append((name, run, run.shard))
    shards.sort(key=lambda item: item[2].index)
    first, plan = shards[0][1], shards[0][2]
    problems = [*_of_another_plan(shards), *_missing(shards)]
    results, twice = _join(shards)
    problems += twice
    left_out = sum(run.left_out for _, run, _ in shards)
    if not problems:
        problems += _in_no_shard(shards, len(results), left_out)
    problems += [problem for _, run, _ in shards for problem in run.problems]
    return replace(
        first,
        run_id=f"merged-{plan.plan[:12]}",
        started_at=min(run.started_at for _, run, _ in shards),
        duration_s=max(run.duration_s for _, run, _ in shards),
        jobs=sum(run.jobs for _, run, _ in shards),
        planned=max(plan.cells, len(results)),
        results=results,
        whole=all(shard.whole for _, _, shard in shards) and not left_out and not problems,
        interrupted=any(run.interrupted for _, run, _ in shards),
        notes=(*dict.fromkeys(note for _, run, _ in shards for note in run.notes), _told(shards)),
        shard=None,
        left_out=left_out,
        problems=tuple(dict.fromkeys(problems)),
    )


_Named = tuple[str, Run, Shard]


def _told(shards: Sequence[_Named]) -> str:
    return f"merged of {', '.join(f'{shard.index}/{shard.count} ({run.run_id})' for _, run, shard in shards)}"


def _of_another_plan(shards: Sequence[_Named]) -> list[str]:
    name, first, plan = shards[0]
    problems = []
    for other, run, shard in shards[1:]:
        if (shard.plan, shard.count, shard.cells) != (plan.plan, plan.count, plan.cells):
            problems.append(
                f"{other} and {name} are shards of two plans: run all of them with the same filter, the same N, "
                "the same --durations and the same matrix.yaml"
            )
        elif changed := differing(first.fingerprints, run.fingerprints):
            problems.append(f"{other} and {name} were not made of the same: {', '.join(changed)}")
    return problems


def _missing(shards: Sequence[_Named]) -> list[str]:
    indexes = [shard.index for _, _, shard in shards]
    count = shards[0][2].count
    gone = [str(index) for index in range(1, count + 1) if index not in indexes]
    problems = [f"shard {', '.join(gone)} of {count} is missing"] if gone else []
    for index in sorted({index for index in indexes if indexes.count(index) > 1}):
        names = " and ".join(name for name, _, shard in shards if shard.index == index)
        problems.append(f"shard {index} of {count} is there more than once: {names}")
    return problems


def _join(shards: Sequence[_Named]) -> tuple[tuple[CellResult, ...], list[str]]:
    """Each cell once, with its worst result, in the order of the shards; and what is there more than once."""
    found: dict[str, tuple[str, CellResult]] = {}
    problems = []
    for name, run, _ in shards:
        for result in run.results:
            cell = str(result.cell)
            if cell in found:
                earlier, other = found[cell]
                problems.append(f"{cell} is in two shards: {earlier} and {name}")
                result = other if worst((other.verdict, result.verdict)) is other.verdict else result
            found[cell] = (name, result)
    return tuple(result for _, result in found.values()), problems


def _in_no_shard(shards: Sequence[_Named], judged: int, left_out: int) -> list[str]:
    """Asked only where every shard is there once, and is of this plan."""
    plan = shards[0][2]
    planned = sum(run.planned for _, run, _ in shards)
    if planned != plan.cells:
        return [f"{abs(plan.cells - planned)} of {plan.cells} cells of the plan are in no shard, or in more than one"]
    if judged == plan.cells and plan.plan != fingerprint_shards(
        [str(result.cell) for result in run.results] for _, run, _ in shards
    ):
        return ["the cells of these shards are not those of their plan"]
    return []
