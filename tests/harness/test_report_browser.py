"""The HTML report in a real browser, without a network. Skipped, visibly, where there is no Chromium."""

from __future__ import annotations

import html as html_text
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from harness.model import Verdict
from harness.report.html import render_html
from harness.report.json_result import result_document
from harness.report.output import printable
from tests.harness.test_report_files import make_hostile_run
from tests.harness.test_report_sample import make_big_run, make_result, make_run

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_BROWSER = next(filter(None, map(shutil.which, _NAMES)), None)

pytestmark = pytest.mark.skipif(_BROWSER is None, reason=f"no browser: none of {', '.join(_NAMES)} is installed")


def dump_dom(page: str, tmp_path: Path, fragment: str = "") -> str:
    """The document after its scripts ran, as the browser serialises it."""
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    quiet = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update")
    silent = ("--disable-background-networking", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}")
    address = (tmp_path / "report.html").as_uri() + fragment
    done = subprocess.run(
        [str(_BROWSER), "--headless", *quiet, *silent, "--dump-dom", address],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=120,
        check=True,
    )
    return done.stdout.decode("utf-8", "replace")


def drive(page: str, script: str, tmp_path: Path) -> Any:
    """What ``script`` (the body of a function, after the page's own script) returns, by way of JSON.

    The content security policy is taken out of the copy, because it rightly refuses this script.
    """
    copy = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", page)
    told = (
        "<script>const press = (key) => document.activeElement.dispatchEvent("
        "new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));"
        "const type = (text) => { const f = document.getElementById('filter'); f.value = text;"
        " f.dispatchEvent(new Event('input')); };"
        "const seen = () => [...document.querySelectorAll('.chip')].filter((c) => c.checkVisibility());"
        "const visible = () => seen().map((c) => c.getAttribute('aria-label'));"
        f"document.body.dataset.told = JSON.stringify((() => {{{script}}})());</script></body>"
    )
    dom = dump_dom(copy.replace("</body>", told), tmp_path)
    found = re.search(r'data-told="(.*?)"', dom)
    assert found is not None, "the script did not come to its end"
    return json.loads(html_text.unescape(found[1]))


def plain(dom: str) -> str:
    """The text of the story in a serialised document."""
    (story,) = re.findall(r'<aside id="story"[^>]*>(.*?)</aside>', dom, re.DOTALL)
    return html_text.unescape(re.sub(r"<[^>]*>", "", story))


def test_the_address_of_a_cell_opens_its_story(tmp_path: Path) -> None:
    run = make_big_run()
    result = next(result for result in run.results if len(result.violations) == 2)
    dom = dump_dom(render_html(run), tmp_path, f"#cell={quote(str(result.cell))}")
    story = plain(dom)
    assert str(result.cell) in story and result.repro in story
    for violation in result.violations:
        assert violation.invariant in story and violation.path in story and violation.detail in story
    assert f"T4 (expected {result.cell.expect.row})" in story
    for chapter in result.story:
        assert chapter.title in story and chapter.ended in story
        assert chapter.pid is None or f"pid {chapter.pid}" in story
    assert "added: archive/.candidates/cards.jsonl" in story
    assert "changed: archive/cards/000001.jsonl" in story
    assert "The tree is as it was, byte for byte." in story
    assert f"<title>FAIL · {result.cell}</title>" in dom.replace("&gt;", ">")


def test_without_an_address_no_story_is_open(tmp_path: Path) -> None:
    dom = dump_dom(render_html(make_big_run()), tmp_path)
    assert plain(dom) == ""
    assert "300 cells</output>" in dom


def test_an_address_that_no_cell_has_opens_nothing(tmp_path: Path) -> None:
    assert plain(dump_dom(render_html(make_big_run(5)), tmp_path, "#cell=no/such%cell")) == ""


def test_hostile_text_is_shown_and_not_run(tmp_path: Path) -> None:
    run = make_hostile_run()
    page = render_html(run, result_document(run))
    page = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", page)  # escaping must do it alone
    for result in run.results:
        dom = dump_dom(page, tmp_path, f"#cell={quote(printable(str(result.cell), one_line=True))}")
        assert "<title>owned" not in dom
        assert len(re.findall("<script[ >]", dom)) == 2
        assert "<img" not in dom
        assert printable(result.repro, one_line=True) in plain(dom)


def test_the_policy_lets_the_page_s_own_script_and_style_run(tmp_path: Path) -> None:
    page = render_html(make_big_run(5)).replace("</body>", "<script>document.title = 'foreign';</script></body>")
    dom = dump_dom(page, tmp_path, f"#cell={quote(str(make_big_run(5).results[0].cell))}")
    assert "<title>foreign" not in dom
    assert "What happened" in plain(dom)


def test_arrow_keys_move_in_the_matrix_and_enter_opens_a_story(tmp_path: Path) -> None:
    script = """
        const at = () => document.activeElement.getAttribute('aria-label');
        const stops = document.querySelectorAll('.matrix .chip[tabindex="0"]').length;
        document.querySelector('.chip[tabindex="0"]').focus();
        const path = [at()];
        for (const key of ['ArrowRight', 'ArrowDown', 'ArrowLeft', 'ArrowUp', 'ArrowUp', 'End', 'Home']) {
          press(key);
          path.push(at());
        }
        document.activeElement.click();
        const still = document.querySelectorAll('.chip[tabindex="0"]').length;
        return { stops, path, hash: decodeURIComponent(location.hash), still };
    """
    results = [
        make_result(point, fault=fault) for point in ("a.b.one", "a.b.two") for fault in ("kill", "rival", "term")
    ]
    told = drive(render_html(make_run(results)), script, tmp_path)
    steps = [("one", "kill"), ("one", "rival"), ("two", "rival"), ("two", "kill"), ("one", "kill"), ("one", "kill")]
    steps += [("one", "term"), ("one", "kill")]
    assert told["path"] == [f"a.b.{point}, shop.checkout, {fault}: 1 cell, 1 pass" for point, fault in steps]
    assert told["stops"] == told["still"] == 1
    assert told["hash"] == "#cell=shop.checkout/a.b.one#1=kill"


def test_a_story_takes_the_focus_and_gives_it_back(tmp_path: Path) -> None:
    script = """
        const story = document.getElementById('story'), chip = document.querySelector('.chip');
        location.hash = '';
        chip.click();
        dispatchEvent(new HashChangeEvent('hashchange'));
        const inside = document.activeElement.id, open = !story.hidden, current = chip.getAttribute('aria-current');
        press('Escape');
        return { inside, open, current, closed: story.hidden, back: document.activeElement === chip };
    """
    told = drive(render_html(make_run([make_result()])), script, tmp_path)
    assert told == {"inside": "story-title", "open": True, "current": "true", "closed": True, "back": True}


def test_the_filter_finds_by_text_and_by_verdict(tmp_path: Path) -> None:
    results = [
        make_result("a.b.one", fault="rival", code="E_BUSY"),
        make_result("a.b.two", verdict=Verdict.FAIL),
        make_result("z.b.three", scenario="other"),
    ]
    script = """
        const found = {};
        for (const text of ['', 'one', 'e_busy', 'NOTHING_overwritten a.b', 'other', 'nowhere']) {
          type(text);
          found[text] = visible().map((label) => label.split(',')[0]);
        }
        const none = !document.getElementById('nothing').hidden;
        type('two');
        const heads = [...document.querySelectorAll('.fault')].filter((head) => head.checkVisibility());
        const columns = heads.map((head) => head.textContent);
        type('');
        document.querySelector('input[value=passed]').click();
        // dispatchEvent says false where the page kept the key for itself
        document.querySelector('.chip').focus();
        const slashes = [press('/'), document.activeElement.id, press('/')];
        return { slashes, found, none, columns, failed: visible(), told: document.getElementById('shown').textContent };
    """
    told = drive(render_html(make_run(results)), script, tmp_path)
    assert told["found"] == {
        "": ["a.b.one", "a.b.two", "z.b.three"],
        "one": ["a.b.one"],
        "e_busy": ["a.b.one"],
        "NOTHING_overwritten a.b": ["a.b.two"],
        "other": ["z.b.three"],
        "nowhere": [],
    }
    assert told["none"] is True
    assert told["slashes"] == [False, "filter", True]
    assert told["columns"] == ["kill"]
    assert told["failed"] == ["a.b.two, shop.checkout, kill: 1 cell, 1 fail"]
    assert told["told"] == "1 of 3 cells"


def test_a_scenario_can_be_chosen_and_a_chip_says_what_is_shown_of_it(tmp_path: Path) -> None:
    results = [
        make_result(scenario="one", hit=1),
        make_result(scenario="one", hit=2, verdict=Verdict.FAIL),
        make_result(scenario="two", hit=1),
    ]
    script = """
        const count = document.getElementById('shown').textContent;
        const select = document.getElementById('scenario'), all = visible(), texts = seen().map((c) => c.textContent);
        type('#1');
        const partly = visible();
        type('');
        const again = visible(), same = texts.join() === seen().map((c) => c.textContent).join();
        select.value = 'two';
        select.dispatchEvent(new Event('input'));
        return { count, all, partly, again, same, two: visible() };
    """
    told = drive(render_html(make_run(results)), script, tmp_path)
    name = "shop.pay.charged, {}, kill: {}"
    assert told["all"] == told["again"] == [
        name.format("all scenarios", "3 cells, 1 fail"),
        name.format("one", "2 cells, 1 fail"),
        name.format("two", "1 cell, 1 pass"),
    ]  # fmt: skip
    assert told["partly"] == [
        name.format("all scenarios", "2 cells, 2 pass"),
        name.format("one", "1 cell, 1 pass"),
        name.format("two", "1 cell, 1 pass"),
    ]
    assert told["same"] is True
    assert told["count"] == "3 cells"  # not twice, though two chips show each of them
    assert told["two"] == [name.format("two", "1 cell, 1 pass")]


def test_a_story_opened_from_all_scenarios_lists_the_cells_of_all(tmp_path: Path) -> None:
    run = make_run([make_result(scenario="one"), make_result(scenario="two", verdict=Verdict.FAIL)])
    script = """
        document.querySelector('.chip').click();
        dispatchEvent(new HashChangeEvent('hashchange'));
        const links = [...document.querySelectorAll('.siblings a')];
        return { title: document.getElementById('story-title').textContent, links: links.map((a) => a.textContent) };
    """
    told = drive(render_html(run), script, tmp_path)
    assert told["title"] == "two/shop.pay.charged#1=kill"
    assert told["links"] == ["✓ passone #1=kill", "✗ failtwo #1=kill"]


def test_only_what_changed_can_be_shown(tmp_path: Path) -> None:
    before = result_document(make_run([make_result(hit=1), make_result("shop.pay.sent", verdict=Verdict.FAIL)]))
    page = render_html(make_run([make_result(hit=1), make_result("shop.pay.sent")]), before)
    told = drive(page, "document.getElementById('only-changed').click(); return visible();", tmp_path)
    assert told == ["shop.pay.sent, shop.checkout, kill: 1 cell, 1 pass"]
