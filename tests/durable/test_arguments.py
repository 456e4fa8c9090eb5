"""The short way through a command line: whatever it answers, argparse answers the same; the rest it leaves to argparse."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import product.collector.cli
import product.signals.cli
import product.sites.cli
from product.durable.arguments import CommandLine, Parser

LINES = {
    "collector": product.collector.cli.COMMAND_LINE,
    "signals": product.signals.cli.COMMAND_LINE,
    "sites": product.sites.cli.COMMAND_LINE,
}
ORDINARY = {
    "collector": [
        ["recover"],
        ["recover", "--wait", "2.5"],
        ["commit", "--evidence", "e.json"],
        ["commit", "--state-dir", "/s", "--evidence", "e.json", "--segment-max-bytes", "900"],
        ["begin", "--task", "creator-42", "--at", "2026-11-30T12:34:56Z"],
        ["import-feed", "feed.json", "--task", "a", "--run-id", "b"],
        ["import-feed", "--task", "a", "feed.json"],
    ],
    "signals": [
        ["scan", "--file", "f", "--state", "s", "--durability", "process"],
        ["show", "--state", "s", "--top", "3"],
        ["adopt", "--moved", "--file", "f", "--state", "s"],
    ],
    "sites": [
        ["consume", "--state", "s", "--now", "7"],
        ["probe", "https://example.org/", "--force", "--state", "s", "--want", "a.c"],
        ["revive", "example.org", "--state", "s"],
    ],
}
WORDS = [
    *{word for lines in ORDINARY.values() for line in lines for word in line},
    *("", "-", "--", "-1", "--file=f", "--stat", "--help", "-h", "nan", "x y", "--nobody", "status", "check", "watch"),
]


def ask_argparse(line: CommandLine, argv: Sequence[str]) -> dict[str, object] | int:
    try:
        return vars(line._parser.parse_args(argv))
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


@pytest.mark.parametrize(("product", "argv"), [(name, argv) for name, lines in ORDINARY.items() for argv in lines])
def test_an_ordinary_line_goes_the_short_way_to_the_same_answer(product: str, argv: list[str]) -> None:
    plainly = LINES[product].read_plainly(argv)
    assert plainly is not None
    assert vars(plainly) == ask_argparse(LINES[product], argv)


@given(st.sampled_from(sorted(LINES)), st.data())
def test_whatever_the_short_way_answers_argparse_answers_too(product: str, data: st.DataObject) -> None:
    line = data.draw(st.sampled_from(ORDINARY[product]))
    cut = data.draw(st.integers(0, len(line)))
    argv = [*line[:cut], *data.draw(st.lists(st.sampled_from(WORDS), max_size=4)), *line[cut:]]
    plainly = LINES[product].read_plainly(argv)
    if plainly is not None:
        assert vars(plainly) == ask_argparse(LINES[product], argv)


LEFT = {
    "collector": [
        [], ["nobody"], ["commit"], ["recover", "-h"], ["recover", "more"], ["recover", "--", "x"], ["recover", "--wait"],
        ["recover", "--wait", "x"], ["recover", "--wait=1"], ["recover", "--wai", "1"], ["commit", "--evidence", "-x"],
    ],
    "signals": [["scan", "--file", "f", "--state", "s", "--durability", "nobody"], ["adopt", "--moved=1"]],
}  # fmt: skip


@pytest.mark.parametrize(("product", "argv"), [(name, argv) for name, lines in LEFT.items() for argv in lines])
def test_anything_else_is_left_to_argparse(product: str, argv: list[str]) -> None:
    assert LINES[product].read_plainly(argv) is None


@pytest.mark.parametrize(("argv", "status"), [(["recover", "--nobody"], 64), (["recover", "-h"], 0)])
def test_argparse_answers_what_is_left_to_it(argv: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        LINES["collector"].read(argv)
    told = capsys.readouterr()
    assert end.value.code == status and "usage: python -m product.collector" in told.out + told.err


def test_a_command_that_the_short_way_does_not_know_is_argparses() -> None:
    parser = Parser()
    sub = parser.add_subparsers(dest="command")
    sub.add_parser("many").add_argument("--file", nargs="+")
    sub.add_parser("default").add_argument("--wait", type=int, default="7")
    sub.add_parser("both").add_argument("--on", action=argparse.BooleanOptionalAction)
    line = CommandLine(parser)
    assert all(line.read_plainly([name]) is None for name in ("many", "default", "both"))
    assert line.read(["many", "--file", "a", "b"]).file == ["a", "b"] and line.read(["default"]).wait == 7
