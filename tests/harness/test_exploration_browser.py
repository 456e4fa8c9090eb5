"""The page of an exploration in a real browser, without a network. Skipped, visibly, where there is no Chromium."""

from __future__ import annotations

import re
from pathlib import Path

from harness.report.exploration import repro_steps
from harness.report.exploration_html import render_exploration_html
from harness.report.output import printable
from tests.harness import test_report_browser
from tests.harness.exploration_sample import kill, make_big, make_exploration, make_hostile, make_small, make_wrong
from tests.harness.test_report_browser import drive, dump_dom, plain

pytestmark = test_report_browser.pytestmark

_HELP = """
    const box = (number) => document.querySelector(`.n[data-state="${number}"]`);
    const lit = (kind) => document.querySelectorAll(`.lit .${kind}`).length;
    const near = () => [...document.querySelectorAll('.n.near')].map((n) => Number(n.dataset.state));
    // a window that is not in front is told of no change of focus, so it is told here, too
    const tell = (kind, node) => node.dispatchEvent(new FocusEvent(kind, { bubbles: true }));
    const take = (node) => { tell('focusout', document.activeElement); node.focus(); tell('focusin', node); };
"""


def test_the_address_of_a_state_opens_what_is_known_about_it(tmp_path: Path) -> None:
    found = make_wrong()
    dom = dump_dom(render_exploration_html(found), tmp_path, "#state=3")
    story = plain(dom)
    for said in ("✗ violation in state 3", "after 2 crashes", "SENT / HELD", "the record of post 17 is there twice"):
        assert said in story
    assert repro_steps(found.scenario, found.states[3].steps) in story
    assert "shop.a#1=killleaves 1 PAID / HELD" in story
    assert "Undisturbed, a process takesT1T2" in story
    assert "Killed, it leaves (1 state, 1 kill)→ 1 PAID / HELDshop.b#1=kill" in story
    assert "Left by a kill from (1 state, 1 kill)← 1 PAID / HELDshop.d#1=kill" in story
    assert "state 3 · VIOLATION" in dom


def test_a_violation_after_a_detour_brings_its_own_command(tmp_path: Path) -> None:
    found = make_wrong()
    story = plain(dump_dom(render_exploration_html(found), tmp_path, "#row-1"))
    assert repro_steps(found.scenario, (kill("b"),)) in story
    assert repro_steps(found.scenario, found.states[1].steps) in story


def test_an_address_that_no_state_has_opens_nothing(tmp_path: Path) -> None:
    dom = dump_dom(render_exploration_html(make_small()), tmp_path, "#state=77")
    assert plain(dom) == "" and "4 states</output>" in dom


def test_hostile_text_is_shown_and_not_run(tmp_path: Path) -> None:
    found = make_hostile()
    page = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", render_exploration_html(found))
    for number in range(1, 5):  # escaping must do it alone
        dom = dump_dom(page, tmp_path, f"#state={number}")
        assert "<title>owned" not in dom and "<img" not in dom
        assert len(re.findall("<script[ >]", dom)) == 2
        assert printable(found.states[number].label, one_line=True) in plain(dom)


def test_the_policy_lets_the_page_s_own_script_and_style_run(tmp_path: Path) -> None:
    page = render_exploration_html(make_small())
    page = page.replace("</body>", "<script>document.title = 'foreign';</script></body>")
    dom = dump_dom(page, tmp_path, "#state=1")
    assert "<title>foreign" not in dom and "Shortest path" in plain(dom)


def test_a_state_in_focus_lights_its_edges_and_arrows_move(tmp_path: Path) -> None:
    script = (
        _HELP
        + """
        const stops = document.querySelectorAll('.n[tabindex="0"]').length;
        const dark = [lit('out'), lit('in'), lit('way'), near()];
        const path = [];
        box(0).focus();
        for (const key of ['', 'ArrowRight', 'ArrowDown', 'ArrowRight', 'ArrowRight', 'ArrowLeft']) {
          if (key) press(key);
          path.push(Number(document.activeElement.dataset.state));
        }
        take(box(1));
        const light = [lit('out'), lit('in'), lit('way'), near()], hint = document.getElementById('hint').textContent;
        const last = document.querySelectorAll('.n[tabindex="0"]').length;
        take(box(0));
        const kills = [...document.querySelectorAll('.kills')].map((text) => text.textContent);
        tell('focusout', box(0));
        const again = near();
        box(2).dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
        const pointed = near();
        return { stops, last, dark, path, light, hint, kills, again, pointed };
    """
    )
    told = drive(render_exploration_html(make_small()), script, tmp_path)
    assert told["stops"] == told["last"] == 1
    assert told["dark"] == [0, 0, 0, []] and told["again"] == []
    assert told["path"] == [0, 1, 2, 3, 3, 2]
    assert told["light"] == [1, 2, 1, [0, 1, 3]]
    assert told["hint"] == "state 1 PAID / HELD · after 1 crash · undisturbed, it takes T1 · 1 kill out, 3 in"
    assert told["kills"] == ["×2"]
    assert told["pointed"] == [0, 2]


def test_a_panel_takes_the_focus_and_gives_it_back(tmp_path: Path) -> None:
    script = (
        _HELP
        + """
        const story = document.getElementById('story');
        box(3).dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true }));
        const hash = location.hash;
        dispatchEvent(new HashChangeEvent('hashchange'));
        const told = { hash, inside: document.activeElement.id, open: !story.hidden, way: lit('way') };
        press('Escape');
        return { ...told, closed: story.hidden, back: document.activeElement === box(3) };
    """
    )
    told = drive(render_exploration_html(make_small()), script, tmp_path)
    expected = {"hash": "#state=3", "inside": "story-title", "open": True, "way": 2, "closed": True, "back": True}
    assert told == expected


def test_the_filter_finds_by_label_by_step_and_by_row(tmp_path: Path) -> None:
    script = (
        _HELP
        + """
        const found = {};
        const lines = () => [...document.querySelectorAll('.states tbody tr')].filter((line) => line.checkVisibility());
        for (const text of ['', 'held', 'row:T1', 'row:t', 'shop.d', 'paid row:t1', 'nowhere']) {
          type(text);
          const off = [...document.querySelectorAll('.n.off')].length;
          found[text] = [lines().map((line) => Number(line.dataset.state)), off, document.getElementById('shown').textContent];
        }
        return { found, none: !document.getElementById('nothing').hidden };
    """
    )
    told = drive(render_exploration_html(make_small()), script, tmp_path)
    assert told["none"] is True
    assert told["found"] == {
        "": [[0, 1, 2, 3], 0, "4 states"],
        "held": [[1, 3], 2, "2 of 4 states"],
        "row:T1": [[1, 3], 2, "2 of 4 states"],  # not T10
        "row:t": [[], 4, "0 of 4 states"],
        "shop.d": [[3], 3, "1 of 4 states"],
        "paid row:t1": [[1], 3, "1 of 4 states"],
        "nowhere": [[], 4, "0 of 4 states"],
    }


def test_a_thousand_states_and_none_at_all(tmp_path: Path) -> None:
    found = make_big()
    story = plain(dump_dom(render_exploration_html(found), tmp_path, "#state=999"))
    assert repro_steps(found.scenario, found.states[999].steps) in story
    dom = dump_dom(render_exploration_html(make_exploration([])), tmp_path)
    assert "0 states</output>" in dom and "disabled" not in re.findall(r'<input id="filter"[^>]*>', dom)[0]
