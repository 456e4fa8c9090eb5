"""Each invariant, with a history made by hand that breaks exactly it, and the same history put right.

``judge`` names everything that is found: what is broken is named, and nothing else is. So an invariant that is taken out,
or one that objects to everything, turns a test red.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.judge.invariants import INVARIANTS, Invariant, first_difference, judge_history
from harness.judge.scenario import History, Judgement, Moment
from harness.judge.tree import Entry, Tree
from harness.model import Expect, Record, Violation
from tests.harness.histories import (
    FILES,
    GROWN,
    OK,
    Shop,
    details,
    everywhere,
    healthy,
    healthy_but,
    judge,
    moment,
    result,
    tree,
)


def test_a_history_with_nothing_wrong() -> None:
    assert judge(healthy()) == set()
    assert judge(healthy(), Expect(row="T2", resumes="B4")) == set()
    assert judge_history(Shop(), healthy(), Expect()).checks > len(INVARIANTS)


LOOKED_AT = {  # the healthy history, one with a rival, one that was tampered with, one that refuses
    "append_at_most_once": (6, 8, 5, 4),
    "nothing_overwritten": (12, 18, 9, 9),
    "converges": (1, 1, 1, 1),
    "no_self_deadlock": (3, 3, 1, 2),
    "live_owner_untouched": (0, 1, 0, 0),
    "refusal_changes_nothing": (0, 0, 0, 2),
    "monotonic": (5, 7, 5, 4),
    "no_residue": (4, 4, 5, 0),
    "third_content_kept": (0, 0, 2, 0),
    "answers": (0, 0, 0, 0),
    "row": (0, 0, 0, 0),
}


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda invariant: invariant.__name__)
def test_each_says_how_many_facts_it_looked_at(invariant: Invariant) -> None:
    """Not one more: what looked at nothing has proven nothing, and the canary goes by that number."""
    refusal = {"ok": False, "code": "E_ALIVE"}
    moments = [moment(role, FILES, refusal, 1) for role in ("run", "recovery", "again")]
    histories = (
        healthy(),
        held(moment("rival", FILES, {"ok": False, "code": "BUSY"}, 75)),
        tampered(GROWN | {"third": "a stranger's"}),
        History((moment("set-up", FILES), *moments)),
    )
    looked_at = tuple(invariant(Shop(), history, Expect()).checks for history in histories)
    assert looked_at == LOOKED_AT[invariant.__name__]


def test_one_fact_is_looked_at_where_an_answer_or_a_row_is_due() -> None:
    invariants = {invariant.__name__: invariant for invariant in INVARIANTS}
    for code in ("FULL", "E_NO"):
        history = healthy(run=moment("run", FILES, {"ok": False, "code": "FULL"}, 1))
        assert invariants["answers"](Shop(), history, Expect(code=code)).checks == 1
    for row in ("T2", "T3"):
        assert invariants["row"](Shop(), healthy(), Expect(row=row)).checks == 1


def test_a_protected_file_that_comes_up_is_one_more_fact() -> None:
    invariants = {invariant.__name__: invariant for invariant in INVARIANTS}
    start = {key: text for key, text in FILES.items() if key != "orders"}
    appears = History((moment("set-up", start), moment("run", FILES, None, None)))
    assert invariants["nothing_overwritten"](Shop(), appears, Expect()).checks == 2 + 1


# --- append_at_most_once


def test_a_record_that_is_there_twice() -> None:
    history = everywhere(FILES | {"orders": "one\ntwo\ntwo\n"})
    assert judge(history) == {("append_at_most_once", "")} and "two is there twice after recovery" in details(history)
    assert "one is there twice" not in details(history)


def test_a_record_that_is_there_twice_for_a_moment_only() -> None:
    files = FILES | {"orders": "one\ntwo\ntwo\n"}
    found = judge(healthy(run=moment("run", files, None, None)))
    assert found == {("append_at_most_once", ""), ("nothing_overwritten", "orders")}


def test_an_acknowledged_record_that_is_not_there() -> None:
    history = healthy(
        run=moment("run", FILES, OK),
        recovery=moment("recovery", FILES, {"ok": True}),
        again=moment("again", FILES, {"ok": True}),
        retry=moment("retry", GROWN, {"ok": True}),
    )
    assert judge(history) == {("append_at_most_once", "")}
    assert "two was acknowledged and is not there after run" in details(history)
    assert "two was acknowledged and is not there after again" in details(history)
    unsaid = [moment("run", FILES, None, None), *history.moments[2:]]
    assert judge(History((history.moments[0], *unsaid))) == set(), "what nobody acknowledged may come with the retry"


def test_an_acknowledged_record_may_be_on_its_way_until_a_recovery_says_done() -> None:
    """A program may acknowledge what its journal holds; nobody has said yet that it is applied."""
    acknowledged = moment("run", FILES, OK, None)
    refused = moment("recovery", FILES, {"ok": False, "code": "E_LATER"}, 1)
    run = Moment("run", acknowledged.tree, result(OK, 1))
    on_its_way = History((*healthy(run=run).moments[:2], refused, *healthy().moments[2:]))
    assert judge(on_its_way) == set()
    done = History((*on_its_way.moments[:3], moment("recovery", FILES, {"ok": True}), *healthy().moments[2:]))
    assert judge(done) == {("append_at_most_once", "")}


def test_a_due_record_that_is_not_there_after_the_retry() -> None:
    history = everywhere(FILES, {"ok": True})
    assert judge(history) == {("append_at_most_once", "")} and "two is due" in details(history)
    assert judge(History(history.moments[:-1])) == set(), "nobody said yet that the command is done"


def test_records_that_cannot_be_read() -> None:
    history = everywhere(FILES | {"orders": "one\ntwo\n?\n"})
    assert judge(history) == {("append_at_most_once", "")}
    for role in ("recovery", "again", "retry"):
        assert f"after {role}: orders: not an order" in details(history)


# --- nothing_overwritten


@pytest.mark.parametrize(
    ("files", "path", "says"),
    [
        (GROWN | {"orders": "ONE\ntwo\n"}, "orders", "rewritten"),
        ({key: text for key, text in FILES.items() if key != "orders"}, "orders", "vanished"),
        (GROWN | {"orders": "one\ntwo\nth"}, "orders", "torn record"),
        (GROWN | {"notes": "yours"}, "notes", "a foreign file changed"),
        ({key: text for key, text in GROWN.items() if key != "notes"}, "notes", "a foreign file vanished"),
        (GROWN | {"seal": "WAX"}, "seal", "an immutable file changed"),
        ({key: text for key, text in GROWN.items() if key != "seal"}, "seal", "an immutable file vanished"),
    ],
)
def test_a_protected_file_is_overwritten(files: dict[str, str], path: str, says: str) -> None:
    history = everywhere(files, {"ok": True})
    assert ("nothing_overwritten", path) in judge(history) and says in details(history)
    assert {name for name, _ in judge(history)} <= {"nothing_overwritten", "append_at_most_once"}


def test_every_file_is_looked_at_whatever_stands_before_it() -> None:
    others = {"a directory": Entry("directory", 0o755), "allowed": Entry("file", 0o644, b"whatever")}
    before, after = tree(FILES, **others), tree(FILES | {"seal": "WAX"}, **others)
    moments = (Moment("set-up", before), Moment("run", after, result(None, None)))
    assert judge(History(moments)) == {("nothing_overwritten", "seal")}
    later = (Moment("set-up", before), moment("run", FILES | {"orders": "ONE\n"}, None, None))
    assert judge(History(later)) == {("nothing_overwritten", "orders")}


def test_what_comes_after_a_tampering_is_looked_at() -> None:
    start = moment("set-up", FILES)
    kept = (
        start,
        Moment("paused", start.tree),
        moment("tampered", FILES),
        moment("run", FILES | {"seal": "WAX"}, None, None),
    )
    assert judge(History(kept)) == {("nothing_overwritten", "seal")}


def test_a_protected_file_becomes_something_else() -> None:
    link = tree(GROWN, orders=Entry("symlink", 0o777, b"elsewhere"))
    moments = [Moment(m.role, link if m.role != "set-up" else m.tree, m.result) for m in healthy().moments]
    assert ("nothing_overwritten", "orders") in judge(History(tuple(moments)))


def test_a_mode_is_content_too() -> None:
    changed = tree(GROWN, notes=Entry("file", 0o600, b"mine"))
    moments = healthy().moments
    moments = (*moments[:2], *(Moment(m.role, changed, m.result) for m in moments[2:]))
    assert judge(History(moments)) == {("nothing_overwritten", "notes")}


def test_a_new_protected_file_that_is_torn() -> None:
    start = {key: text for key, text in FILES.items() if key != "orders"}
    moments = (moment("set-up", start), moment("run", start | {"orders": "one\ntw"}, None, None))
    assert judge(History(moments)) == {("nothing_overwritten", "orders")}
    assert judge(History((moments[0], moment("run", start | {"orders": "one\n"}, None, None)))) == set()


def test_an_immutable_file_may_vanish_when_its_term_is_over() -> None:
    files = {key: text for key, text in GROWN.items() if key != "seal"} | {"expired": ""}
    assert judge(everywhere(files)) == {("no_residue", "expired")}


def test_a_directory_is_no_protected_file() -> None:
    moments = healthy().moments
    start = Moment("set-up", tree(FILES, **{"seal/box": Entry("directory", 0o700)}))
    assert judge(History((start, *moments[1:]))) == set()
    start = Moment("set-up", tree(FILES, **{"seal/box": Entry("file", 0o600)}))
    assert judge(History((start, *moments[1:]))) == {("nothing_overwritten", "seal/box")}


def test_what_a_stranger_does_to_a_protected_file_is_not_the_programs_doing() -> None:
    held, swapped = moment("paused", FILES), moment("tampered", FILES | {"notes": "his", "lock": "1"})
    files = GROWN | {"notes": "his", "lock": "1"}
    history = everywhere(files)
    moments = (history.moments[0], held, swapped, moment("run", files), *history.moments[2:])
    assert judge(History(moments)) == set()


# --- converges


def test_recoveries_that_do_not_end() -> None:
    bad = moment("recovery", GROWN, {"ok": False, "code": "E_NO"}, 1)
    history = healthy(between=(bad, bad), recovery=bad)
    assert judge(history) == {("converges", ""), ("refusal_changes_nothing", "orders")}
    assert "3 recoveries did not end; the last said E_NO" in details(history)
    killed = healthy(recovery=moment("recovery", GROWN, None, None))
    assert judge(killed) == {("converges", "")} and "said SIGKILL" in details(killed)


def test_a_recovery_that_met_the_next_fault_refuses_nothing() -> None:
    """In a chain of crashes: it fails in the middle, with the code of that, and the one after it is judged."""
    failed = moment("recovery", GROWN, {"ok": False, "code": "E_IO"}, 1)
    assert failed.result is not None
    met = replace(failed, result=replace(failed.result, records=(Record("error", "shop.saved", 1, 4711),)))
    moments = healthy().moments
    for first, found in ((met, set()), (failed, {("refusal_changes_nothing", "orders")})):
        assert judge(History((*moments[:2], first, *moments[2:]))) == found
    refusal = {"ok": False, "code": "E_ALIVE"}
    ends = (moment("recovery", GROWN, refusal, 1), moment("again", GROWN, refusal, 1))
    assert judge(History((*moments[:2], met, *ends)), Expect(refuses="E_ALIVE")) == set()
    assert ("converges", "") in judge(History((*moments[:2], failed, *ends)), Expect(refuses="E_ALIVE"))


def test_a_refusal_that_is_expected_ends_a_recovery() -> None:
    refusal = {"ok": False, "code": "E_ALIVE"}
    history = History(
        (
            moment("set-up", FILES),
            moment("run", FILES, refusal, 1),
            moment("recovery", FILES, refusal, 1),
            moment("again", FILES, refusal, 1),
        )
    )
    assert judge(history, Expect(refuses="E_ALIVE")) == set()
    assert judge(history, Expect(refuses="E_OTHER")) == {("converges", "")}
    assert judge(history) == {("converges", "")}


def test_a_repeated_recovery_changes_something() -> None:
    more = GROWN | {"orders": "one\ntwo\nthree\n"}
    history = healthy(again=moment("again", more, {"ok": True}), retry=moment("retry", more, {"ok": True}))
    assert judge(history) == {("converges", "orders")} and "changed by a repeated recovery" in details(history)


def test_a_repeated_recovery_fails() -> None:
    history = healthy(again=moment("again", GROWN, {"ok": False, "code": "E_NO"}, 1))
    assert judge(history) == {("converges", "")} and "a repeated recovery failed: E_NO" in details(history)


def test_a_recovery_that_does_not_refuse_where_it_must() -> None:
    assert judge(healthy(), Expect(refuses="E_ALIVE")) == {("converges", "")}
    said = details(healthy(), Expect(refuses="E_ALIVE"))
    assert "the recovery said ok, due is E_ALIVE" in said and "the again said ok, due is E_ALIVE" in said


def test_the_client_does_not_get_on() -> None:
    history = healthy(retry=moment("retry", GROWN, {"ok": False, "code": "E_NO"}, 1))
    assert judge(history) == {("converges", "")} and "the client's retry failed with E_NO" in details(history)


def test_the_last_recovery_is_the_one_that_counts() -> None:
    first = moment("recovery", GROWN, {"ok": False, "code": "E_FIRST"}, 1)
    last = moment("recovery", GROWN, {"ok": False, "code": "E_LAST"}, 1)
    assert "2 recoveries did not end; the last said E_LAST" in details(healthy(between=(first,), recovery=last))
    killed, silent = moment("recovery", GROWN, None, None), moment("recovery", GROWN, None, 3)
    assert "2 recoveries did not end; the last said exit 3" in details(healthy(between=(killed,), recovery=silent))


def test_a_recovery_of_which_nothing_is_known_did_not_end() -> None:
    history = healthy(recovery=Moment("recovery", tree(GROWN), None))
    assert judge(history) == {("converges", "")} and "the last said nothing" in details(history)


# --- no_self_deadlock


@pytest.mark.parametrize("role", ["recovery", "again", "retry"])
def test_nobody_is_alive_and_it_answers_busy(role: str) -> None:
    files = FILES if role == "recovery" else GROWN
    busy = moment(role, files, {"ok": False, "code": "BUSY"}, 1)
    found = judge(healthy_but(role, busy))
    assert ("no_self_deadlock", "") in found and found <= {
        ("no_self_deadlock", ""),
        ("converges", ""),
        ("converges", "orders"),
    }
    other = judge(healthy_but(role, moment(role, files, {"ok": False, "code": "E_NO"}, 1)))
    assert ("no_self_deadlock", "") not in other
    by_status = healthy_but(role, moment(role, files, None, 75))
    assert ("no_self_deadlock", "") in judge(by_status)
    assert f"{role} answered BUSY" in details(healthy_but(role, busy)) and f"{role} answered 75" in details(by_status)


def test_busy_is_right_where_a_living_owner_is_expected() -> None:
    refusal = {"ok": False, "code": "BUSY"}
    moments = [moment(role, FILES, refusal, 1) for role in ("run", "recovery", "again")]
    history = History((moment("set-up", FILES), *moments))
    assert judge(history, Expect(refuses="BUSY")) == set()
    assert ("no_self_deadlock", "") in judge(history)


# --- live_owner_untouched


def held(rival: Moment) -> History:
    return healthy(run=moment("paused", FILES), between=(rival, moment("run", FILES, {"ok": True})))


def test_a_rival_of_a_living_owner() -> None:
    refused = moment("rival", FILES, {"ok": False, "code": "BUSY"}, 75)
    assert judge(held(refused), Expect(code="BUSY")) == set()
    assert judge(held(refused), Expect(code="E_OTHER")) == {("live_owner_untouched", "")}
    touched = moment("rival", FILES | {"lock": "8"}, {"ok": False, "code": "BUSY"}, 75)
    found = judge(held(touched), Expect(code="BUSY"))
    assert found == {("live_owner_untouched", "lock"), ("monotonic", "generation")}


def test_a_rival_that_is_let_in() -> None:
    history = held(moment("rival", FILES, {"ok": True}))
    assert judge(history, Expect(code="BUSY")) == {("live_owner_untouched", "")}
    assert "the rival said ok, due is BUSY" in details(history, Expect(code="BUSY"))
    assert "the rival said nothing" in details(held(moment("rival", FILES)), Expect(code="BUSY"))


# --- refusal_changes_nothing


@pytest.mark.parametrize("role", ["recovery", "again", "retry"])
def test_a_refusal_that_changes_something(role: str) -> None:
    refusal = {"ok": False, "code": "E_NO"}
    before = FILES if role == "recovery" else GROWN
    changed = moment(role, before | {"third": "left by it"}, refusal, 1)
    found = judge(healthy_but(role, changed))
    assert ("refusal_changes_nothing", "third") in found
    book = moment(role, before | {"lock": "8"}, refusal, 1)
    assert "refusal_changes_nothing" not in {name for name, _ in judge(healthy_but(role, book))}


def test_a_run_that_failed_in_the_middle_is_no_refusal() -> None:
    """Under an injected error it has begun, and says so: what it left is the recovery's to put right."""
    run = moment("run", FILES | {"orders.tmp": "half"}, {"ok": False, "code": "FULL"}, 1)
    assert judge(healthy(run=run), Expect(code="FULL")) == set()


# --- monotonic


def test_a_counter_that_falls() -> None:
    history = everywhere(GROWN | {"lock": "6"})
    assert judge(history) == {("monotonic", "generation")} and "fell from 7 to 6 after recovery" in details(history)
    assert judge(everywhere(GROWN | {"lock": "8"})) == set()


def test_a_counter_that_falls_while_it_is_out_of_sight() -> None:
    gone = {key: text for key, text in FILES.items() if key != "lock"}
    history = everywhere(GROWN | {"lock": "6"})
    moments = (history.moments[0], moment("run", gone, None, None), *history.moments[2:])
    assert judge(History(moments)) == {("monotonic", "generation")}


# --- no_residue


def test_something_is_left_over() -> None:
    history = everywhere(GROWN | {"orders.tmp": "half"})
    assert judge(history) == {("no_residue", "orders.tmp")}
    first = healthy(run=moment("run", FILES | {"orders.tmp": "half"}, None, None))
    assert judge(first) == set(), "in the middle anything may lie about"
    unfinished = (moment("set-up", FILES), moment("paused", FILES | {"orders.tmp": "half"}))
    assert judge(History(unfinished)) == set(), "of a process that is held, too"


# --- third_content_kept


def tampered(last: dict[str, str]) -> History:
    there = FILES | {"third": "a stranger's"}
    return History(
        (
            moment("set-up", FILES),
            moment("paused", FILES),
            moment("tampered", there),
            moment("run", there, {"ok": True}),
            moment("recovery", last, {"ok": True, "did": ["two"]}),
        )
    )


def test_what_a_stranger_put_there_is_kept() -> None:
    assert judge(tampered(GROWN | {"third": "a stranger's"})) == set()
    assert judge(tampered(GROWN)) == {("third_content_kept", "third")}
    assert judge(tampered(GROWN | {"third": "another's"})) == {("third_content_kept", "third")}
    moved = judge(tampered(GROWN | {"aside": "a stranger's"}))
    assert moved == {("no_residue", "aside")}, "under another name it is still there"


def test_what_is_the_programs_own_may_be_rewritten() -> None:
    """Its state says so by its name, or by what is in it."""

    class ByName(Shop):
        own_state = ("third",)

    class ByContent(Shop):
        def is_own(self, path: str, tree: Tree) -> bool:
            return tree.file(path) == b"a stranger's"

    assert judge(tampered(GROWN), scenario=ByName()) == set()
    assert judge(tampered(GROWN), scenario=ByContent()) == set()


# --- answers


def test_the_process_under_an_error_answers_another_code() -> None:
    def run(answer: dict[str, Any] | None) -> History:
        return healthy(run=moment("run", FILES, answer, 1))

    assert judge(run({"ok": False, "code": "FULL"}), Expect(code="FULL")) == set()
    assert judge(run({"ok": False, "code": "E_NO"}), Expect(code="FULL")) == {("answers", "")}
    assert judge(run({"ok": True}), Expect(code="FULL")) == {("answers", "")}
    assert "the process said nothing, due is FULL" in details(run(None), Expect(code="FULL"))


# --- row


@pytest.mark.parametrize(
    ("expect", "says"),
    [
        (Expect(row="T3"), "the reopen took row T2, due is T3; all: T2 B4"),
        (Expect(row="none"), "the reopen took row T2, due is None"),
        (Expect(resumes="B5"), "the reopen resumed at B4, due is B5"),
        (Expect(resumes="X1"), "the reopen resumed at None, due is X1"),
    ],
)
def test_another_row_than_the_matrix_expects(expect: Expect, says: str) -> None:
    assert judge(healthy(), expect) == {("row", "")} and says in details(healthy(), expect)


def test_the_row_is_the_first_recoverys() -> None:
    silent = healthy(between=(moment("recovery", GROWN, {"ok": True}),))
    assert judge(silent, Expect(row="none")) == set()
    assert judge(silent, Expect(row="T2")) == {("row", "")}


def test_without_a_recovery_no_row_is_due() -> None:
    assert judge(History(healthy().moments[:2]), Expect(row="T2", resumes="B4")) == set()


# --- the scenario's own judge, and what a judge may not do


def test_the_scenarios_own_judge_counts() -> None:
    class Strict(Shop):
        def judge(self, history: History) -> Judgement:
            return Judgement((Violation("strict", "seal", "no"),), 1)

    assert judge(healthy(), scenario=Strict()) == {("strict", "seal")}


# --- large states stay readable


def test_two_large_states_that_differ() -> None:
    """B208: a message with lengths, hashes, the first differing offset and a short context."""
    before = bytes(range(256)) * 4096
    after = bytearray(before)
    after[700_001] ^= 0xFF
    after.append(10)
    words = first_difference(before, bytes(after))
    assert words.startswith("1048576 B -> 1048577 B, sha256 fbbab289 -> ")
    assert "first difference at byte 700001: " in words and len(words) < 400
    assert repr(before[700_001 - 16 : 700_001 + 16]) in words
    moments = (
        Moment("set-up", Tree({"notes": Entry("file", 0o644, before)})),
        Moment("run", Tree({"notes": Entry("file", 0o644, bytes(after))}), result(None, None)),
    )
    assert len(details(History(moments))) < 600


def test_states_of_which_one_begins_the_other() -> None:
    assert "3 B -> 2 B" in first_difference(b"abc", b"ab") and "at byte 2" in first_difference(b"abc", b"ab")


def test_a_difference_in_full() -> None:
    assert first_difference(b"abc", b"xbc") == (
        "3 B -> 3 B, sha256 ba7816bf -> 11f99563, first difference at byte 0: b'abc' -> b'xbc'"
    )
    history = everywhere({key: text for key, text in GROWN.items() if key != "notes"}, {"ok": True})
    assert "a foreign file vanished (4 B, sha256 3fd30542) (run -> recovery)" in details(history)
