"""The HTML report as text: complete, self-contained, and deaf to what a product writes into it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harness.model import Step, Verdict
from harness.report.grid import ALL, area_of, build_tables, natural, product_of
from harness.report.html import MARKS, render_html, write_html
from harness.report.json_result import result_document
from harness.report.tally import KILL_PROVES_NO_FSYNC, not_covered, unused_faults
from tests.harness.test_report_files import make_hostile_run
from tests.harness.test_report_sample import HOSTILE, make_big_run, make_point, make_result, make_run

_VOID = {"meta", "input", "wbr", "br", "img", "link"}


class Page(HTMLParser):
    """Elements with their attributes, and the text inside each kind of element; refuses tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute twice: {attrs}"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)

    def all(self, tag: str, **attributes: str) -> list[dict[str, str]]:
        return [a for name, a in self.elements if name == tag and attributes.items() <= a.items()]


def read_data(html: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="run-data">(.*?)</script>', html, re.DOTALL)
    data: dict[str, Any] = json.loads(text)
    return data


@pytest.fixture(scope="module")
def html() -> str:
    return render_html(make_big_run())


def test_every_cell_is_in_the_page_once(html: str) -> None:
    run = make_big_run()
    for result in run.results:
        assert str(result.cell) in html
    for of_all in (False, True):  # once under its scenario, once under all scenarios together
        chips = [chip for chip in Page(html).all("button") if ("data-all" in chip) == of_all]
        places = [int(place) for chip in chips for place in chip["data-cells"].split()]
        assert sorted(places) == list(range(len(run.results)))


def test_the_page_holds_the_result_document(html: str) -> None:
    data, document = read_data(html), json.loads(json.dumps(result_document(make_big_run())))
    assert {key: data[key] for key in document} == document


def test_the_page_needs_nothing_from_elsewhere(html: str) -> None:
    page = Page(html)
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy["content"]
    for tag, attributes in page.elements:
        assert tag not in {"link", "img", "iframe", "object", "base", "form"}
        assert "src" not in attributes and "style" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert "http" not in re.sub(r'http-equiv="', "", html.split('<script type="application/json"')[0])


def test_verdict_counts_and_what_they_do_not_cover_are_told(html: str) -> None:
    assert "5 of 300 cells broke an invariant." in html
    assert KILL_PROVES_NO_FSYNC in html
    for sentence in not_covered(make_big_run()):
        assert sentence in html
    assert "collector.release.pending_removed is listed and no cell reached it" in html
    assert html.count("not in this run") == len(unused_faults(make_big_run())) > 0


def test_the_matrix_is_a_table_that_a_screen_reader_can_read(html: str) -> None:
    page = Page(html)
    assert page.all("html", lang="en")
    assert all(th.get("scope") in {"col", "row", "colgroup", "rowgroup"} for th in page.all("th"))
    chips = [button for button in page.all("button") if "chip" in button["class"]]
    assert all(
        re.fullmatch(r".+, .+, .+: \d+ cells?, \d+ (pass|fail|unreached|hung|foreign|unknown)", c["aria-label"])
        for c in chips
    )
    assert all(chip["type"] == "button" for chip in chips)
    words = {word for text in page.texts["span"] for word in [text.strip()] if word in {m[1] for m in MARKS.values()}}
    assert words == {mark[1] for mark in MARKS.values()}  # never by colour alone
    assert page.all("caption") and page.all("output", **{"aria-live": "polite"})


def test_a_group_says_how_many_of_its_cells_are_at_its_worst() -> None:
    verdicts = (Verdict.PASS, Verdict.FAIL, Verdict.PASS, Verdict.FAIL)
    run = make_run([make_result(hit=n + 1, verdict=verdict) for n, verdict in enumerate(verdicts)])
    html = render_html(run)
    assert 'aria-label="shop.pay.charged, shop.checkout, kill: 4 cells, 2 fail"' in html
    assert "<b>2/4</b>" in html


def test_the_ways_of_one_kind_of_fault_share_a_column() -> None:
    results = [make_result(fault="error:EIO"), make_result(fault="error:ENOSPC", verdict=Verdict.FAIL)]
    html = render_html(make_run(results))
    assert 'aria-label="shop.pay.charged, shop.checkout, error: 2 cells, 1 fail"' in html
    assert "all scenarios" not in Page(html).texts["th"]


def test_table_rows_are_counted_where_the_matrix_lists_some() -> None:
    run = make_run([make_result(rows_reached=frozenset({"T1"}))])
    assert "table rows taken" not in render_html(run)
    html = render_html(replace(run, listed_rows=frozenset({"T1", "T2"})))
    assert "<dt>table rows taken</dt><dd>1<small> of 2</small>" in html
    assert "row T2 is listed and no process took it" in html


def test_what_changed_against_the_run_before() -> None:
    run = make_big_run()
    previous = result_document(run)
    broken, gone = previous["cells"][30]["id"], "collector.commit/collector.old#1=kill"
    failing = next(cell for cell in previous["cells"] if cell["verdict"] == "FAIL")
    failing["verdict"] = "PASS"
    previous["cells"].append({**previous["cells"][0], "id": gone})
    previous["run_id"] = "the-run-before"
    html = render_html(run, previous)
    assert "Against run the-run-before" in html
    assert '<b class="change broken">1 broken</b>' in html and '<b class="change gone">1 gone</b>' in html
    assert gone in html
    assert read_data(html)["changed"] == {failing["id"]: "PASS"}
    assert broken not in read_data(html)["changed"]
    assert "Against run" not in render_html(run)
    assert "Nothing changed." in render_html(run, result_document(run))


def test_hostile_text_stays_text() -> None:
    run = make_hostile_run()
    html = render_html(run, result_document(make_run([make_result(HOSTILE[0])], run_id=HOSTILE[1])))
    page = Page(html)
    assert len(page.all("script")) == 2
    assert not page.all("img")
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert "{{ 7 * 7 }}" in html
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800]", html)
    assert [cell["id"] for cell in read_data(html)["cells"]] == [str(result.cell) for result in run.results]


def test_an_empty_run_and_one_without_points_have_a_page(tmp_path: Path) -> None:
    write_html(make_run([]), tmp_path / "empty.html")
    assert "no cell ran" in (tmp_path / "empty.html").read_text()
    results = [replace(make_result(), cell=replace(make_result().cell, steps=()), steps=())]
    assert "(no fault)" in render_html(make_run(results))


def test_two_thousand_cells_stay_light() -> None:
    run = make_big_run(2000)
    html = render_html(run)
    assert len(html) / len(run.results) < 2500


# ---- rows and columns


def test_rows_come_in_catalogue_order_by_area_and_columns_by_scenario_and_fault() -> None:
    results = [
        make_result("shop.pay.sent", scenario="b", fault="tamper:x"),
        make_result("shop.cart.open", scenario="b"),
        make_result("shop.pay.charged", scenario="b", fault="error:EIO"),
        make_result("shop.pay.charged", scenario="a"),
        make_result("till.close", scenario="c"),
        make_result("shop.pay.unknown", scenario="a"),
    ]
    names = ("shop.pay.charged", "shop.cart.open", "shop.pay.sent", "shop.pay.unlisted", "till.close", "till.late")
    points = tuple(make_point(name) for name in names)
    run = make_run(results, points=points, listed_points=frozenset({"till.late"}))
    shop, till = build_tables(run)
    of_each = (("a", "kill"), ("b", "kill"), ("b", "error"), ("b", "tamper"))
    assert shop.columns == ((ALL, "kill"), (ALL, "error"), (ALL, "tamper"), *of_each)
    assert shop.scenarios == ((ALL, 3), ("a", 1), ("b", 3))
    assert till.columns == (("c", "kill"),)
    assert (shop.counts.cells, till.counts.cells) == (5, 1)
    assert [area.counts.cells for area in shop.areas] == [4, 1]
    assert [(area.name, [row.label for row in area.rows]) for area in shop.areas] == [
        ("shop.pay", ["charged", "sent", "unknown"]),
        ("shop.cart", ["open"]),
    ]
    groups = [group and group.indexes for group in shop.areas[0].rows[0].groups]
    assert groups == [(3,), (2,), None, (3,), None, (2,), None]
    assert [(row.point, row.unreached) for row in till.areas[0].rows] == [("till.close", False), ("till.late", True)]
    assert till.areas[0].rows[1].groups == (None,)


def test_cells_of_a_group_come_by_depth_and_hit() -> None:
    results = [
        make_result(hit=10),
        make_result(hit=1, deeper=[Step("shop.pay.sent", 1, "kill")]),
        make_result(hit=2),
        make_result(hit=1),
    ]
    (table,) = build_tables(make_run(results))
    (group,) = table.areas[0].rows[0].groups
    assert group is not None and group.indexes == (3, 2, 0, 1)


def test_a_row_counts_the_cells_whose_processes_reached_its_point() -> None:
    results = [make_result("a.b.one", points_reached=frozenset({"a.b.one", "a.b.two"})), make_result("a.b.two")]
    rows = build_tables(make_run(results))[0].areas[0].rows
    assert [(row.point, row.passed_by) for row in rows] == [("a.b.one", 1), ("a.b.two", 2)]


def test_names_are_taken_apart() -> None:
    assert area_of("collector.takeover.rename/tmp-written") == "collector.takeover"
    assert area_of("alone") == "alone"
    assert product_of("collector.takeover.rename/tmp-written") == "collector"
    assert sorted(["a#10", "a#2", "a", "1"], key=natural) == ["1", "a", "a#2", "a#10"]
