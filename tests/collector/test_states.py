"""The reopen tables, state by state: who is not proven dead is never robbed, and what no row names is ambiguous.

The rows themselves are held against SPEC.md by test_spec.py. Here every state of the full product is asked, against
statements that are written out anew.
"""

from __future__ import annotations

from enum import Enum

import pytest

from product.collector.claims import ClaimState, TakeoverPhase
from product.collector.records import Phase
from product.collector.states import (
    BEGUN,
    CLAIM,
    IDLE,
    ITEMS,
    REFUSALS,
    TABLES,
    TAKEOVER,
    TRANSACTION,
    Action,
    Attempt,
    Displaced,
    Items,
    MainLock,
    Quarantine,
    _row,
)
from product.durable.identity import Holder
from product.durable.table import Row, Table

NOT_PROVEN_DEAD = {
    Holder.ALIVE: "E_FORMAL_LOCK_BUSY",
    Holder.REUSED: "E_FORMAL_LOCK_PID_REUSE",
    Holder.UNPROVEN: "E_FORMAL_LOCK_OWNER_UNPROVEN",
}
AMBIGUOUS = "E_RECOVERY_AMBIGUOUS"

CLAIM_ASKS = {
    ("PLANNED", "ABSENT", "PREPARED"),
    ("PLANNED", "OLD", "PREPARED"),
    *(("HELD", "OLD", phase.value) for phase in Phase if phase is not Phase.BEGUN),
}
"""claim, main lock, phase: where the claim's holder is asked about (C1 to C6)."""

DUE = ("EXACT", "NONE_DUE")
TAKEOVER_ASKS = {
    ("TAKEOVER_PLANNED", "OLD", "ABSENT"),
    ("TAKEOVER_PLANNED", "ABSENT", "NONE_DUE"),
    ("OLD_LOCK_QUARANTINED", "ABSENT", "EXACT"),
    *(("CREATE_PLANNED", lock, quarantine) for lock in ("ABSENT", "NEW") for quarantine in DUE),
    *(("NEW_LOCK_HELD", "NEW", quarantine) for quarantine in DUE),
}
"""takeover, main lock, quarantine: where a holder is asked about (T1, T3 to T8, T10, T11), with no attempt beside."""

PLANS_A_TAKEOVER = {Action.PLAN_TAKEOVER, Action.PLAN_TAKEOVER_NONE_DUE}


@pytest.mark.parametrize("words", [("ABSENT",), ("ABSENT", "ABSENT", "ABSENT")])
def test_a_line_has_one_word_a_column(words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="argument 2 is"):
        _row(IDLE.columns, ("I1", *words, Action.NOTHING))


def answer(row: Row[Action]) -> str | None:
    """The code with which the row refuses, None where it acts."""
    return REFUSALS.get(row.action)


def short(state: dict[str, Enum], *columns: str) -> tuple[str, ...]:
    return tuple(str(state[column].value) for column in columns)


def test_every_state_of_every_table_has_one_row() -> None:
    sizes = {name: len({tuple(state.values()) for state, _ in table.states()}) for name, table in TABLES.items()}
    assert sizes == {"Idle": 4, "Begun": 8, "Items": 36, "Claim": 240, "Takeover": 1200, "Transaction": 324}
    assert all(sum(row.when is None for row in table.rows) == 1 for table in TABLES.values())


def test_what_is_ambiguous_in_one_table_is_so_by_the_row_that_says_else() -> None:
    """T9 alone refuses as ambiguous by a row of its own."""
    named = {row.label for table in TABLES.values() for row in table.rows if row.when and answer(row) == AMBIGUOUS}
    assert named == {"T9"}


# ------------------------------------------------------------------------------------------------------- claim


@pytest.mark.parametrize("holder", NOT_PROVEN_DEAD)
def test_a_claim_is_never_taken_from_a_holder_that_is_not_proven_dead(holder: Holder) -> None:
    for state, row in CLAIM.states():
        if state["holder"] is not holder or row.label == "C7":
            continue
        asked = short(state, "claim", "main_lock", "phase") in CLAIM_ASKS
        assert answer(row) == (NOT_PROVEN_DEAD[holder] if asked else AMBIGUOUS), state


def test_a_takeover_of_a_claim_is_planned_for_the_dead_only_and_in_every_phase() -> None:
    planned = {
        short(state, "claim", "main_lock", "phase"): (state["holder"], row.action)
        for state, row in CLAIM.states()
        if row.action in PLANS_A_TAKEOVER
    }
    assert planned.keys() == CLAIM_ASKS
    for (_, lock, _), (holder, action) in planned.items():
        assert holder is Holder.DEAD
        assert action is (Action.PLAN_TAKEOVER_NONE_DUE if lock == "ABSENT" else Action.PLAN_TAKEOVER)


@pytest.mark.parametrize("holder", Holder)
def test_c7_a_released_lock_asks_about_nobody(holder: Holder) -> None:
    asked = {"claim": ClaimState.HELD, "main_lock": MainLock.ABSENT, "holder": holder}
    assert CLAIM.decide(**asked, phase=Phase.RELEASING).action is Action.REMOVE_PENDING
    for phase in set(Phase) - {Phase.RELEASING}:
        assert answer(CLAIM.decide(**asked, phase=phase)) == AMBIGUOUS


def test_no_claim_survives_a_lock_of_third_content() -> None:
    for state, row in CLAIM.states():
        if state["main_lock"] in (MainLock.THIRD, MainLock.NEW) or state["phase"] is Phase.BEGUN:
            assert answer(row) == AMBIGUOUS


# ---------------------------------------------------------------------------------------------------- takeover


@pytest.mark.parametrize("holder", NOT_PROVEN_DEAD)
def test_a_takeover_goes_on_over_nobody_who_is_not_proven_dead(holder: Holder) -> None:
    for state, row in TAKEOVER.states():
        if state["holder"] is not holder or row.label in ("T2", "T6", "T9"):
            continue
        asked = short(state, "takeover", "main_lock", "quarantine") in TAKEOVER_ASKS
        asked = asked and state["attempt"] is Attempt.ABSENT
        assert answer(row) == (NOT_PROVEN_DEAD[holder] if asked else AMBIGUOUS), state


def test_a_reused_pid_frees_only_a_claim_that_never_became_a_lock() -> None:
    """T6: nothing carries the planned holder's name yet. T9: its lock is there, and nobody can say whose it is."""
    for state, row in TAKEOVER.states():
        if state["holder"] is Holder.REUSED and state["takeover"] is TakeoverPhase.CREATE_PLANNED:
            free = state["main_lock"] is MainLock.ABSENT and short(state, "quarantine")[0] in DUE
            free = free and state["attempt"] is not Attempt.OTHER
            assert row.label == ("T6" if free else "T9" if state["main_lock"] is MainLock.NEW else "T-AMBIGUOUS")
            assert row.action is (Action.REBIND if free else Action.REFUSE_AMBIGUOUS)


@pytest.mark.parametrize("holder", Holder)
def test_t2_what_is_in_quarantine_exactly_asks_about_nobody(holder: Holder) -> None:
    for state, row in TAKEOVER.states():
        if row.label == "T2":
            assert short(state, "takeover", "main_lock", "quarantine") == ("TAKEOVER_PLANNED", "ABSENT", "EXACT")
    found = {"main_lock": MainLock.ABSENT, "quarantine": Quarantine.EXACT, "attempt": Attempt.ABSENT}
    row = TAKEOVER.decide(takeover=TakeoverPhase.TAKEOVER_PLANNED, holder=holder, **found)
    assert row.action is Action.ADVANCE_QUARANTINED


def test_no_takeover_goes_on_over_third_content() -> None:
    for state, row in TAKEOVER.states():
        third = (
            MainLock.THIRD in state.values() or Quarantine.OTHER in state.values() or Attempt.OTHER in state.values()
        )
        if third or state["takeover"] is TakeoverPhase.NONE:
            assert answer(row) == AMBIGUOUS, state


def test_only_what_is_gone_from_its_place_is_created_anew() -> None:
    """A lock is created where there is none, and by the process that planned it."""
    for table, action in ((CLAIM, Action.CREATE_LOCK), (TAKEOVER, Action.CREATE_NEW_LOCK)):
        found = [state for state, row in table.states() if row.action is action]
        assert found
        assert all(state["main_lock"] is MainLock.ABSENT and state["holder"] is Holder.SELF for state in found)


def test_the_transaction_goes_on_only_under_a_lock_of_ours() -> None:
    for table, lock in ((CLAIM, MainLock.OLD), (TAKEOVER, MainLock.NEW)):
        for state, row in table.states():
            if row.action is Action.CONTINUE:
                assert state["main_lock"] is lock and state["holder"] is Holder.SELF


# ------------------------------------------------------------------------------------------------- transaction


def test_a_transaction_acts_on_what_it_knows_only() -> None:
    for state, row in TRANSACTION.states():
        unknown = "THIRD" in short(state, "cards", "runs", "displaced") or "UNSOUND" in short(state, "material")
        runs_first = short(state, "cards", "runs") == ("BASE", "CANDIDATE")
        if unknown or runs_first or state["phase"] is Phase.BEGUN:
            assert answer(row) == AMBIGUOUS, state
        elif answer(row) is None:
            due = Displaced.BASE if row.action is Action.REMOVE_DISPLACED else Displaced.NONE
            assert state["displaced"] is due, state


def test_each_phase_of_the_transaction_has_its_own_actions() -> None:
    found: dict[Enum, set[Action]] = {}
    for state, row in TRANSACTION.states():
        found.setdefault(state["phase"], set()).add(row.action)
    acts = {phase: actions - set(REFUSALS) for phase, actions in found.items()}
    assert acts == {
        Phase.BEGUN: set(),
        Phase.PREPARED: {Action.BUILD_CANDIDATES},
        Phase.TRANSACTION_INTENT: {
            Action.REMOVE_DISPLACED, Action.PUT_CARDS, Action.PUT_RUNS, Action.ADVANCE_COMMITTED,
        },
        Phase.BUSINESS_COMMITTED: {Action.SETTLE},
        Phase.TERMINAL: {Action.CLEAN},
        Phase.RELEASING: {Action.RELEASE},
    }  # fmt: skip


# ------------------------------------------------------------------------------------ items, begun and nothing


def test_an_item_may_be_gone_only_after_the_terminal_record() -> None:
    for state, row in ITEMS.states():
        after = state["phase"] in (Phase.TERMINAL, Phase.RELEASING)
        items = state["items"] is Items.EXACT or (after and state["items"] is Items.GONE)
        good = items and state["phase"] is not Phase.BEGUN and short(state, "clock") == ("PLAUSIBLE",)
        assert row.action is (Action.CONTINUE if good else Action.REFUSE_AMBIGUOUS), state


@pytest.mark.parametrize("table", [IDLE, BEGUN], ids=["idle", "begun"])
def test_without_a_claim_nothing_formal_may_be_there(table: Table[Action]) -> None:
    for state, row in table.states():
        clear = short(state, "lock", "items") == ("ABSENT", "ABSENT")
        assert (answer(row) is None) == clear
        assert clear or answer(row) == AMBIGUOUS
