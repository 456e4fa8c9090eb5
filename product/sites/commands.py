"""What a user calls. Each returns the fields of one JSON answer."""

from __future__ import annotations

import gc
import hashlib
import os
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from killpoints import reach
from product.durable.errors import JsonRejected
from product.durable.lines import read_blocks
from product.durable.paths import require_plain_directory
from product.sites import drive, observe, perform, points
from product.sites.entries import Entry, parse_entry, parse_signal
from product.sites.errors import SitesError
from product.sites.explaining import explain as explain_site
from product.sites.judging import decide_fetch
from product.sites.keys import UrlRejected, normalise_url, site_named, site_of
from product.sites.knowledge import Knowledge
from product.sites.layout import Layout
from product.sites.probing import Bounds, Probed
from product.sites.probing import probe as ask
from product.sites.records import knowledge_bytes
from product.sites.states import Fetch, Outcome, Root, State

Answer = dict[str, Any]
SIGNALS_AT_ONCE = 100_000
INVALID_TOLD = 10


@dataclass(frozen=True, slots=True)
class Saving:
    """How a command that writes does it: ``wait_s`` for the lock; ``now`` is what its clock says."""

    now: int
    wait_s: float = 0.0
    batch_bytes: int = perform.BATCH_BYTES


def _record(layout: Layout, choose: drive.Chooser, saving: Saving) -> drive.Done:
    return drive.record(layout, choose, wait_s=saving.wait_s, batch_bytes=saving.batch_bytes)


def _progress(done: drive.Done) -> Answer:
    return {
        "rows": [done.row],
        "recorded": done.recorded,
        "already": done.already,
        "applied": done.progress.lines_applied,
        "epoch": done.progress.epoch,
        "offset": done.progress.offset,
    }


def consume(layout: Layout, saving: Saving) -> Answer:
    """Apply what is in the journal and not in the state. This is all that a recovery has to do."""
    return _progress(_record(layout, partial(_choose, []), saving))


def apply(layout: Layout, signals: Path, saving: Saving) -> Answer:
    """Take the signals of a file into the journal, each id once, and apply them. An invalid line stops none."""
    answer: Answer = {"rows": [], "recorded": 0, "already": 0, "applied": 0, "invalid": 0, "first_invalid": []}
    with observe.opened_lines(signals) as source:
        size = os.fstat(source).st_size
        for batch in _batches(source, size, saving.now):
            done = _progress(_record(layout, partial(_choose, batch.entries), saving))
            for name in ("recorded", "already", "applied"):
                done[name] += answer[name]
            answer = answer | done | {"rows": answer["rows"] or done["rows"], "unfinished_bytes": size - batch.end}
            answer["invalid"] += len(batch.invalid)
            answer["first_invalid"] = [*answer["first_invalid"], *batch.invalid][:INVALID_TOLD]
    return answer


def _choose(entries: list[Entry], _: Knowledge) -> list[Entry]:
    return entries


@dataclass(slots=True)
class _Batch:
    """The signals of some lines, those lines that are none, and where the lines end."""

    entries: list[Entry] = field(default_factory=list)
    invalid: list[Answer] = field(default_factory=list)
    end: int = 0


def _batches(source: int, size: int, now: int) -> Iterator[_Batch]:
    """At least one, which may be empty: what a death left in the journal is applied in any case."""
    batch, number = _Batch(), 0
    for block in read_blocks(source, 0, size):
        for line in block.lines() or [b""]:
            number += 1
            try:
                batch.entries.append(parse_signal(line, now))
            except JsonRejected as error:
                batch.invalid.append({"line": number, "why": error.message if block.data else "too long"})
        batch.end = block.end
        if len(batch.entries) >= SIGNALS_AT_ONCE:
            yield batch
            batch = _Batch(end=batch.end)
    yield batch


def revive(layout: Layout, name: str, saving: Saving) -> Answer:
    """Take a site out of its state by hand; nothing to do where it is NEUTRAL and nothing weighs against it."""
    site = _named(name)

    def choose(known: Knowledge) -> list[Entry]:
        if not _is_moved(known, site):
            return []
        return [Entry(f"revive:{site}:{saving.now}:{_count(known)}", saving.now, Outcome.REVIVED, site=site)]

    done = _record(layout, choose, saving)
    return _progress(done) | {"site": site, "state": _state(done.known, site, saving.now).value}


def _is_moved(known: Knowledge, name: str) -> bool:
    site = known.sites.get(name)
    if site is not None and (site.state is not State.NEUTRAL or site.failures or site.challenges or site.retry_until):
        return True
    return any(page.site == name for page in known.pages.values())


def expire(layout: Layout, saving: Saving) -> Answer:
    """Let everything go that is past its term now. Reading commands see it that way in any case."""

    def choose(known: Knowledge) -> list[Entry]:
        if not known.is_due(saving.now):
            return []
        return [Entry(f"tick:{saving.now}:{_count(known)}", saving.now, Outcome.TICK)]

    return _progress(_record(layout, choose, saving))


def _count(known: Knowledge) -> int:
    """Of the entries that are applied: what is chosen twice before it is applied is the same entry."""
    return sum(known.outcomes.values())


@dataclass(frozen=True, slots=True)
class Asking:
    """How a probe asks: for what, how patiently; ``force``: whatever is known. ``id``: of the signal, to send it again."""

    wanted: re.Pattern[bytes]
    bounds: Bounds
    force: bool = False
    id: str | None = None


def probe(layout: Layout, address: str, asking: Asking, saving: Saving) -> Answer:
    """Fetch one page unless what is known says not to; what comes of it is a signal. The lock is not held meanwhile."""
    url, site = _normal(address), site_of(_normal(address))
    before = _record(layout, partial(_choose, []), saving)
    known = before.known
    row = decide_fetch(known, url, site, saving.now)
    answer: Answer = {"url": url, "site": site, "decision": row.action.value, "rule": row.label, "rows": [before.row]}
    known_id = asking.id is not None and _has_id(layout, asking.id)
    if known_id or (row.action is not Fetch.GO and not asking.force):
        return answer | {"fetched": False, "already": known_id, "state": _state(known, site, saving.now).value}
    probed = ask(url, asking.wanted, asking.bounds, saving.now)
    reach(points.FETCHED)
    entries = _entries_of(probed, asking.id or f"probe:{uuid.uuid4()}", saving.now)
    done = _record(layout, partial(_choose, entries), saving)
    shown = probed.root_result if probed.root is Root.ALIVE and probed.root_result else probed.page
    return (
        answer
        | _progress(done)
        | {
            "rows": [before.row],
            "fetched": True,
            "outcome": probed.page.outcome.value,
            "why": probed.page.why,
            "root": probed.root.value.lower(),
            "root_outcome": probed.root_result.outcome.value if probed.root_result else None,
            "final_url": shown.final_url,
            "retry_after_s": probed.page.retry_after_s,
            "state": _state(done.known, site, saving.now).value,
        }
    )


def _entries_of(probed: Probed, name: str, now: int) -> list[Entry]:
    """One probe is at most one failure: a root that fails is in the signal of its page, one that lives is its own."""
    page, root = probed.page, probed.root_result
    final = root.final_url if probed.root is Root.ALIVE and root else page.final_url
    entries = [
        Entry(name, now, page.outcome, page.url, page.site, probed.root, page.retry_after_s,
              None if final == page.url else final, page.why)
    ]  # fmt: skip
    if root is not None and probed.root is Root.ALIVE:
        final = None if root.final_url == root.url else root.final_url  # type: ignore[assignment]
        entries.append(
            Entry(
                f"{name}/root",
                now,
                root.outcome,
                root.url,
                root.site,
                Root.UNKNOWN,
                root.retry_after_s,
                final,
                root.why,
            )
        )
    return entries


def _has_id(layout: Layout, name: str) -> bool:
    with observe.opened_journal(layout, to_write=False) as journal:
        return name in observe.find_lines(journal, {name})


def explain(layout: Layout, name: str, now: int) -> Answer:
    """Why a site is where it is. Takes no lock: one document is always whole."""
    return explain_site(_known(layout), _named(name), now)


def status(layout: Layout, now: int, only: str | None) -> Answer:
    """The state of every site that is not NEUTRAL, as it is now. Takes no lock."""
    known = _known(layout)
    found = {key: site.effective(now) for key, site in known.sites.items()}
    shown = {key: state.value for key, state in sorted(found.items()) if _is_shown(state, only)}
    return {
        "sites": shown,
        "by_state": dict(sorted(Counter(state.value for state in found.values()).items())),
        "pages": len(known.pages),
        "outage": known.outage.is_open(now),
        "entries": _count(known),
        "rejected": known.rejected,
    }


def _is_shown(state: State, only: str | None) -> bool:
    return state is not State.NEUTRAL if only is None else state.value == only


def check(layout: Layout) -> Answer:
    """Replay the journal from its start and compare. Takes no lock and writes nothing."""
    require_plain_directory(layout.state)
    with observe.opened_journal(layout, to_write=False) as journal:
        seen = observe.observe(layout, journal)
        row = drive.require_resumable(layout, seen)
        applied = seen.found.evidence.applied if seen.found.evidence else 0
        again = _replayed(journal, applied)
    told, due = _digest(seen.known), again["sha256"]
    if told != due:
        raise SitesError("E_SITE_REPLAY", f"a replay up to {applied} differs", state=told, replay=due).at_row(row.label)
    if again["repeated_ids"]:
        raise SitesError("E_SITE_REPLAY", "an id is in the journal twice", first=again["repeated_ids"]).at_row(
            row.label
        )
    return {"rows": [row.label], "agrees": True, "offset": applied} | again


def replay(journal: Path) -> Answer:
    """What a journal amounts to, wherever it lies. ``sha256`` is that of the knowledge; check has the same."""
    with observe.opened_lines(journal) as source, _without_collector():
        return _replayed(source, os.fstat(source).st_size)


@contextmanager
def _without_collector() -> Iterator[None]:
    """What a replay makes stays until it is told, and has no cycles: looking through all of it again and again for garbage
    made a million lines take 4.7 times as long as a quarter of them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _replayed(journal: int, end: int) -> Answer:
    known = observe.replay(journal, end)
    states = Counter(site.state.value for site in known.sites.values())
    return {
        "sha256": _digest(known),
        "entries": _count(known),
        "rejected": known.rejected,
        "by_state": dict(sorted(states.items())),
        "pages": len(known.pages),
        "repeated_ids": _repeated(journal, end),
    }


def _repeated(journal: int, end: int) -> list[str]:
    seen: set[bytes] = set()
    twice: list[str] = []
    for block in read_blocks(journal, 0, end):
        for line in block.lines():
            name = observe.id_in(line)
            if name is not None and name in seen and len(twice) < INVALID_TOLD:
                twice.append(parse_entry(line).id)
            elif name is not None:
                seen.add(name)
    return twice


def _digest(known: Knowledge) -> str:
    return hashlib.sha256(knowledge_bytes(known)).hexdigest()


def _known(layout: Layout) -> Knowledge:
    require_plain_directory(layout.state)
    try:
        seen = observe.observe_knowledge(layout)
    except JsonRejected as error:
        raise SitesError("E_SITE_STATE", error.message, file=str(layout.knowledge)) from error
    return seen[0] if seen else Knowledge()


def _state(known: Knowledge, name: str, now: int) -> State:
    site = known.sites.get(name)
    return State.NEUTRAL if site is None else site.effective(now)


def _named(name: str) -> str:
    try:
        return site_named(name)
    except UrlRejected as error:
        raise SitesError("E_INPUT", f"{name!r} is no site: {error}") from error


def _normal(address: str) -> str:
    try:
        return normalise_url(address)
    except UrlRejected as error:
        raise SitesError("E_INPUT", f"{address!r} is no page: {error}") from error
