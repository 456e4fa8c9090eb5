"""The page of an exploration as text: complete, self-contained, laid out without overlap, deaf to what is put into it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from harness.exploration import Exploration, Finding
from harness.report.exploration import LIMITS, exploration_document, repro_steps, told_apart
from harness.report.exploration_html import (
    badge_of,
    marks_of,
    render_exploration_html,
    state_rows,
    write_exploration_html,
    wrong_paths,
)
from harness.report.exploration_layout import LANES_MOST, OTHER, lay_out
from harness.report.output import printable
from tests.harness.exploration_sample import (
    HOSTILE,
    kill,
    make_big,
    make_exploration,
    make_hostile,
    make_small,
    make_state,
    make_wrong,
)
from tests.harness.test_report_html import Page

SAMPLES: dict[str, Callable[[], Exploration]] = {
    "small": make_small,
    "wrong": make_wrong,
    "hostile": make_hostile,
    "big": make_big,
    "one state": lambda: make_exploration([make_state(0)]),
    "no state": lambda: make_exploration([]),
}


def read_data(html: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="exploration-data">(.*?)</script>', html, re.DOTALL)
    data: dict[str, Any] = json.loads(text)
    return data


@pytest.fixture(params=SAMPLES)
def found(request: pytest.FixtureRequest) -> Exploration:
    return SAMPLES[request.param]()


def test_every_state_is_in_the_picture_and_in_the_table_and_every_edge_is_drawn_once(found: Exploration) -> None:
    page = Page(render_exploration_html(found))
    numbers = [str(state.number) for state in found.states]
    assert [a["data-state"] for a in page.all("a") if a.get("class", "").startswith("n ")] == numbers
    assert sorted(row["data-state"] for row in page.all("tr") if "data-state" in row) == sorted(numbers)
    drawn = [path["data-edge"] for path in page.all("path") if "data-edge" in path]
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == {f"{t.source}-{t.target}" for t in found.transitions}
    rows = {row["id"] for row in page.all("tr") if "id" in row}
    assert {a["href"] for a in page.all("a")} <= {f"#{row}" for row in rows} | {"#states"}


def test_the_page_needs_nothing_from_elsewhere(found: Exploration) -> None:
    html = render_exploration_html(found)
    page = Page(html)
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy["content"]
    for tag, attributes in page.elements:
        assert tag not in {"link", "img", "image", "use", "iframe", "object", "base", "form", "foreignobject"}
        assert "src" not in attributes and "style" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert len(page.all("script")) == 2


def test_nothing_that_a_program_wrote_is_markup_or_a_control_character() -> None:
    found = make_hostile()
    html = render_exploration_html(found)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", html)
    assert "{{" not in html.replace("{{ 7 * 7 }}", "")
    before_data = html.split('<script type="application/json"')[0]
    shown = re.sub(r"\s+", " ", unescape(before_data.replace("<wbr>", "")))
    for text in filter(str.strip, HOSTILE):
        assert re.sub(r"\s+", " ", printable(text)) in shown
    assert read_data(html)["graph"] == json.loads(json.dumps(exploration_document(found)))["graph"]


def test_a_long_label_is_cut_in_the_picture_only() -> None:
    found = make_exploration([make_state(0, (), "L" * 5000 + " / " + "M" * 5000)])
    html = render_exploration_html(found)
    assert lay_out(found).width < 1000
    (picture,) = re.findall(r"<svg id=.*?</svg>", html, re.DOTALL)
    assert "L" * 40 not in re.sub("<title>.*?</title>", "", picture)
    assert "L" * 5000 in html.split("<tbody>")[-1]


def test_the_page_says_verdict_numbers_and_words_without_a_script() -> None:
    found = make_small()
    html = re.sub(r"<script.*?</script>", "", render_exploration_html(found), flags=re.DOTALL)
    text = re.sub(r"\s+", " ", unescape(re.sub(r"<style.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL)))
    for said in ("✓ FIXPOINT", "whatever the number of crashes", "states 4", "edges (kills) 6", "depth (crashes) 2"):
        assert said in text
    for said in ("✓ reached", "processes 12", "3.2", *told_apart(found), *LIMITS):
        assert said in text
    for row, taken in found.rows.items():
        assert re.search(rf"\b{row} {taken}\b", text)


@pytest.mark.parametrize(
    ("changes", "badge"),
    [
        ({}, "FIXPOINT"),
        ({"fixpoint": False, "stopped": "stopped after 2 crashes, with 4 states"}, "NO FIXPOINT"),
        ({"fixpoint": False, "findings": [Finding((), (), "no record")]}, "UNKNOWN"),
        ({"fixpoint": False, "findings": make_wrong().findings}, "VIOLATION"),
    ],
)
def test_the_badge_never_promises_more_than_the_exit_status(changes: dict[str, Any], badge: str) -> None:
    found = make_small(**changes)
    assert badge_of(found)[2] == badge
    assert (badge_of(found)[0] == "passed") == (found.exit_status == 0)
    html = render_exploration_html(found)
    assert f"<title>{badge} ·" in html
    assert found.stopped in html
    assert ("not reached" in html) == (not found.fixpoint)


def test_violations_come_first_and_name_their_state() -> None:
    found = make_wrong()
    wrong = wrong_paths(found)
    assert [(path.state, bool(path.finding.violations)) for path in wrong] == [(1, True), (3, True), (2, False)]
    assert marks_of(wrong) == {1: "failed", 3: "failed", 2: "unknown"}
    assert [row.state.number for row in state_rows(found, marks_of(wrong))] == [1, 3, 2, 0]
    html = render_exploration_html(found)
    commands = re.findall(r'<div class="repro"><code>(.*?)</code>', html)
    told = [unescape(command.replace("<wbr>", "")) for command in commands]
    assert told == [repro_steps(found.scenario, path.finding.steps) for path in wrong]
    page = Page(html)
    kinds = {a["data-state"]: a["class"].split()[2:] for a in page.all("a") if a.get("class", "").startswith("n ")}
    assert kinds == {"0": [], "1": ["failed"], "2": ["unknown"], "3": ["failed"]}
    bad = {path["data-edge"] for path in page.all("path") if path.get("class", "").endswith(" bad")}
    assert bad == {"0-1", "1-3"}
    picture = html[html.index('<svg id="graph"') :]
    assert "✗3</text>" in picture and "?2</text>" in picture and ">0</text>" in picture  # never by colour alone


def test_a_finding_whose_path_leads_nowhere_known_is_still_told() -> None:
    found = make_small(findings=[Finding((kill("z"),), (), "lost"), Finding((kill("y"), kill("z")), (), "lost too")])
    assert [path.state for path in wrong_paths(found)] == [None, None]
    assert "lost too" in render_exploration_html(found)


def test_a_state_from_which_nothing_was_started_says_so() -> None:
    html = render_exploration_html(make_exploration([make_state(0), make_state(1, (kill("a"),), rows=None)]))
    page = Page(html)
    assert [a["data-state"] for a in page.all("a") if "open-end" in a.get("class", "")] == ["1"]
    assert html.count("not started") == 1


def test_the_table_says_how_a_state_is_first_met_and_what_leads_where() -> None:
    rows = {row.state.number: row for row in state_rows(make_small(), {})}
    assert [rows[n].parent for n in range(4)] == [None, 0, 0, 1]
    assert [rows[n].kills for n in range(4)] == [3, 1, 1, 1]
    assert (rows[0].leads_to, rows[1].comes_from, rows[2].comes_from) == ((1, 2), (0, 3), (0, 2))


def test_the_layout_is_the_same_every_time_and_nothing_overlaps(found: Exploration) -> None:
    layout = lay_out(found)
    assert layout == lay_out(found)
    taken = set()
    for box in layout.boxes:
        assert box.x >= 0 and box.x + layout.box_width <= layout.width
        assert box.y >= 0 and box.y + layout.box_height <= layout.height
        taken |= {(box.x + dx, box.y + dy) for dx in range(layout.box_width) for dy in range(layout.box_height)}
    assert len(taken) == len(layout.boxes) * layout.box_width * layout.box_height
    for edge in layout.edges:
        x, *_, y = map(int, re.findall(r"-?\d+", edge.curve))
        assert 0 <= x <= layout.width and 0 <= y <= layout.height


def test_columns_are_crashes_and_lanes_are_labels(found: Exploration) -> None:
    layout = lay_out(found)
    lanes = [(lane.y, lane.y + lane.height, band) for band in layout.bands for lane in band.lanes]
    assert sum(column.states for column in layout.columns) == len(found.states)
    assert sum(lane.states for band in layout.bands for lane in band.lanes) == len(found.states)
    of_label: dict[str, set[tuple[int, int]]] = {}
    for box in layout.boxes:
        (column,) = [column for column in layout.columns if column.x <= box.x < column.x + column.width]
        assert column.depth == box.state.depth
        ((top, bottom, band),) = [lane for lane in lanes if lane[0] <= box.y < lane[1]]
        assert box.y + layout.box_height <= bottom
        assert box.colour == band.colour
        assert band.name in (OTHER, box.state.label.partition(" / ")[0])
        of_label.setdefault(box.state.label, set()).add((top, bottom))
    assert all(len(places) == 1 for places in of_label.values())


def test_too_many_labels_share_a_lane() -> None:
    states = [make_state(0, (), "common"), make_state(1, (kill("x"),), "common")]
    states += [make_state(n, (kill(f"s{n}"),), f"rare{n}") for n in range(2, 2 + 3 * LANES_MOST)]
    layout = lay_out(make_exploration(states))
    assert sum(len(band.lanes) for band in layout.bands) == LANES_MOST + 1
    assert {band.name: band.states for band in layout.bands}[OTHER] == len(states) - 2 - (LANES_MOST - 1)


def test_kills_between_the_same_states_are_one_edge() -> None:
    edges = {(edge.source, edge.target): edge.kills for edge in lay_out(make_small()).edges}
    assert edges == Counter((t.source, t.target) for t in make_small().transitions)
    assert edges[0, 1] == 2


def test_a_screen_reader_can_find_its_way() -> None:
    page = Page(render_exploration_html(make_wrong()))
    assert page.all("html", lang="en") and page.all("caption") and page.all("output", **{"aria-live": "polite"})
    assert all(th.get("scope") in {"col", "row"} for th in page.all("th"))
    (svg,) = page.all("svg", id="graph")
    assert svg["role"] == "group" and svg["aria-label"]
    names = [text for text in page.texts["title"] if text.startswith("state ")]
    assert names[0] == "state 0: the set-up, after no crash"
    assert names[3] == "state 3, violation: SENT / HELD, after 2 crashes"
    assert len(names) == 4


def test_the_file_is_written_whole(tmp_path: Path) -> None:
    write_exploration_html(make_small(), tmp_path / "new" / "graph.html")
    assert (tmp_path / "new" / "graph.html").read_text() == render_exploration_html(make_small())
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["graph.html"]
