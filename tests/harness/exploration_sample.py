"""Explorations made up for the tests of their page."""

from __future__ import annotations

import random
from collections.abc import Sequence

from harness.exploration import Exploration, Finding, State, Transition
from harness.model import Step, Violation

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\x1b[2Jgone\x00\r\n\u202eback / \ud800",
    "L" * 5000 + " / " + "M" * 5000,
    "",
    " / ",
    "{{ 7 * 7 }} / &amp;",
)


def kill(point: str) -> Step:
    return Step(f"shop.{point}", 1, "kill")


def make_state(number: int, steps: Sequence[Step] = (), label: str = "PAID / HELD", rows: object = ("T1",)) -> State:
    return State(number, len(steps), len(steps) <= 1, tuple(steps), label, None, rows)  # type: ignore[arg-type]


def make_exploration(states: Sequence[State], transitions: Sequence[Transition] = (), **changes: object) -> Exploration:
    found = Exploration("shop.checkout", "Times are forgotten.", "Temporary files.", 1, list(states), list(transitions))
    found.fixpoint, found.processes, found.duration_s = True, 12, 3.25
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def make_small(**changes: object) -> Exploration:
    """Four states in two depths: 0 -> 1 by two kills, 0 -> 2, 1 -> 3, 3 -> 1, and 2 stays 2."""
    a, b, c, d = kill("a"), kill("b"), kill("c"), kill("d")
    states = [
        make_state(0, (), "the set-up", ("A1", "T10")),
        make_state(1, (a,), "PAID / HELD"),
        make_state(2, (c,), "PAID / FREE", ()),
        make_state(3, (a, d), "SENT / HELD", ("T1", "T2")),
    ]
    ends = [(0, 1, a), (0, 1, b), (0, 2, c), (1, 3, d), (3, 1, b), (2, 2, c)]
    return make_exploration(states, [Transition(*end) for end in ends], **changes)


def make_wrong() -> Exploration:
    """:func:`make_small` with a violation in state 3, one at the end of a detour to 1, and something unknown in 2."""
    invariant = Violation("appended_at_most_once", "cards.jsonl", "the record of post 17 is there twice")
    return make_small(
        fixpoint=False,
        findings=[
            Finding((kill("c"),), (), "it did not end in its time"),
            Finding((kill("a"), kill("d")), (invariant,)),
            Finding((kill("b"),), (Violation("nothing_overwritten", "a.txt", "3 B became 0 B"),)),
        ],
    )


def make_hostile() -> Exploration:
    """Every text that comes from a program or from a matrix is nasty."""
    states = [make_state(0, (), "the set-up")]
    states += [make_state(n, (Step(text, 1, "kill"),), text, (text,)) for n, text in enumerate(HOSTILE, 1)]
    return make_exploration(
        states,
        [Transition(0, state.number, state.steps[0]) for state in states[1:]],
        scenario=HOSTILE[0],
        abstraction=HOSTILE[1],
        folding=HOSTILE[2],
        findings=[Finding(state.steps, (Violation(*[state.label] * 3),), state.label) for state in states[1:]],
    )


def make_big(states: int = 1000, edges: int = 6000, labels: int = 70, seed: int = 1) -> Exploration:
    chance = random.Random(seed)
    made, transitions = [make_state(0, (), "the set-up")], []
    for number in range(1, states):
        source = made[chance.randrange(max(0, number // 3 - 5), max(1, number // 2))]
        step, claim = kill(f"step{number}"), int(chance.expovariate(0.1)) % labels
        made.append(make_state(number, (*source.steps, step), f"PHASE{claim % 9} / CLAIM{claim}"))
        transitions.append(Transition(source.number, number, step))
    while len(transitions) < edges:
        source, target = chance.choice(made), chance.choice(made)
        if target.depth <= source.depth:
            transitions.append(Transition(source.number, target.number, kill(f"more{len(transitions)}")))
    return make_exploration(made, transitions)
