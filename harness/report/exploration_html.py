"""The page of an exploration: one HTML file that needs no network (harness.md, "Closure", "Report").

Verdict, numbers, words, violations, the picture and the table of states are there without a script; the script lights up
the edges of a state, opens what is known about it, and filters. Like :mod:`harness.report.html`, it reads nouns only.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from harness.exploration import Exploration, Finding, State
from harness.model import Step
from harness.report.exploration import LIMITS, crashes, exploration_document, headline, repro, repro_steps, told_apart
from harness.report.exploration_layout import NUMBERED_MOST, cut, lay_out
from harness.report.output import printable, write_chunks
from harness.report.page import in_script, open_templates, policy_hash


@dataclass(frozen=True, slots=True)
class Wrong:
    """A finding with its command (empty without a crash) and the state that its path leads to, where there is one."""

    finding: Finding
    command: str
    state: int | None


@dataclass(frozen=True, slots=True)
class StateRow:
    """One line of the table of states. ``parent``: the state before the last step of its path."""

    state: State
    parent: int | None
    mark: str
    kills: int
    leads_to: tuple[int, ...]
    comes_from: tuple[int, ...]


def write_exploration_html(found: Exploration, path: str | os.PathLike[str]) -> None:
    """Write the page, whole or not at all. Raises OSError."""
    write_chunks(path, _chunks(found))


def render_exploration_html(found: Exploration) -> str:
    """The whole page in memory."""
    return "".join(_chunks(found))


def _chunks(found: Exploration) -> Iterator[str]:
    templates = open_templates()
    style = templates.get_template("report.css.j2").render() + templates.get_template("exploration.css.j2").render()
    script = templates.get_template("exploration.js.j2").render()
    wrong = wrong_paths(found)
    marks = marks_of(wrong)
    yield from templates.get_template("exploration.html.j2").generate(
        found=found,
        badge=badge_of(found),
        headline=headline(found),
        told_apart=told_apart(found),
        limits=LIMITS,
        wrong=wrong,
        marks=marks,
        bad_edges=_bad_edges(found),
        layout=lay_out(found),
        numbered=len(found.states) <= NUMBERED_MOST,
        rows=state_rows(found, marks),
        describe=describe,
        cut=lambda name: cut(printable(name, one_line=True)),
        one_line=lambda text: printable(text, one_line=True),
        crashes=crashes,
        style=Markup(style),
        style_hash=policy_hash(style),
        script=Markup(script),
        script_hash=policy_hash(script),
        data=_data(found, marks),
    )


def _data(found: Exploration, marks: Mapping[int, str]) -> Markup:
    """The result document, ``marks``, and ``repro``: the command with a line feed where the steps belong."""
    document = exploration_document(found)
    more = {"marks": marks, "repro": repro_steps(found.scenario, ["\n"])}
    return in_script(json.dumps({**document, **more}, separators=(",", ":")))


def badge_of(found: Exploration) -> tuple[str, str, str]:
    """Kind (as in the style sheet), mark and word of the verdict."""
    if found.exit_status == 0:
        return ("passed", "✓", "FIXPOINT")
    if found.violations:
        return ("failed", "✗", "VIOLATION")
    return ("unknown", "?", "UNKNOWN") if found.findings else ("unreached", "○", "NO FIXPOINT")


def describe(state: State, mark: str) -> str:
    """What a state is called where it cannot be seen."""
    said = {"failed": ", violation", "unknown": ", unknown"}.get(mark, "")
    return printable(f"state {state.number}{said}: {state.label}, after {crashes(state.depth)}", one_line=True)


def wrong_paths(found: Exploration) -> tuple[Wrong, ...]:
    """Violations first, each part from the shortest path to the longest."""
    at = _states_by_path(found)
    sources = _targets_by_step(found)

    def place(steps: tuple[Step, ...]) -> int | None:
        if steps in at or not steps:
            return at.get(steps)
        return sources.get((at.get(steps[:-1], -1), steps[-1]))

    ordered = sorted(found.findings, key=lambda finding: (not finding.violations, len(finding.steps)))
    return tuple(Wrong(finding, repro(found, finding), place(finding.steps)) for finding in ordered)


def _states_by_path(found: Exploration) -> dict[tuple[Step, ...], int]:
    return {state.steps: state.number for state in found.states}


def _targets_by_step(found: Exploration) -> dict[tuple[int, Step], int]:
    return {(transition.source, transition.step): transition.target for transition in found.transitions}


def marks_of(wrong: tuple[Wrong, ...]) -> dict[int, str]:
    """State -> ``failed`` or ``unknown``, for those in which something is wrong."""
    marks: dict[int, str] = {}
    for path in wrong:
        if path.state is not None:
            marks.setdefault(path.state, "failed" if path.finding.violations else "unknown")
    return marks


def _bad_edges(found: Exploration) -> frozenset[tuple[int, int]]:
    """The edges of every path to a violation."""
    at, targets = _states_by_path(found), _targets_by_step(found)
    edges = set()
    for finding in found.violations:
        for n, step in enumerate(finding.steps):
            source = at.get(finding.steps[:n])
            target = targets.get((source, step)) if source is not None else None
            if source is not None and target is not None:
                edges.add((source, target))
    return frozenset(edges)


def state_rows(found: Exploration, marks: Mapping[int, str]) -> list[StateRow]:
    """The states, those in which something is wrong first."""
    at = _states_by_path(found)
    kills: dict[int, int] = defaultdict(int)
    after: dict[int, dict[int, None]] = defaultdict(dict)
    before: dict[int, dict[int, None]] = defaultdict(dict)
    for transition in found.transitions:
        kills[transition.source] += 1
        after[transition.source][transition.target] = None
        before[transition.target][transition.source] = None
    rank = {"failed": 0, "unknown": 1}
    return [
        StateRow(
            state,
            at.get(state.steps[:-1]) if state.steps else None,
            marks.get(state.number, ""),
            kills[state.number],
            tuple(after[state.number]),
            tuple(before[state.number]),
        )
        for state in sorted(found.states, key=lambda state: (rank.get(marks.get(state.number, ""), 2), state.number))
    ]
