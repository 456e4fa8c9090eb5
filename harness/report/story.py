"""One cell's story as lines of text: what was found wrong, each process and what it changed, the line that repeats it."""

from __future__ import annotations

from collections.abc import Iterator

from harness.model import CellResult, Chapter
from harness.report.output import difference_lines


def story_lines(result: CellResult) -> Iterator[str]:
    """For a failing test, and for ``killmatrix repro``."""
    yield f"{result.verdict.value}  {result.cell}"
    if result.why:
        yield from (f"  {line}" for line in result.why.splitlines())
    for violation in result.violations:
        yield f"  violation  {violation}"
    for step in result.steps:
        yield f"  {'fired' if step.fired else 'NOT FIRED'}  {step.step}  pid {step.pid}  {step.died_by or 'exited'}"
    if result.rows:
        yield f"  rows taken by the first recovery: {' '.join(result.rows)}"
    before: Chapter | None = None
    for chapter in result.story:
        yield from _chapter_lines(chapter, before)
        before = chapter
    if result.kept_at:
        yield f"  kept at {result.kept_at}"
    yield f"  {result.repro}"


def _chapter_lines(chapter: Chapter, before: Chapter | None) -> Iterator[str]:
    yield ""
    if chapter.pid is None:
        yield f"{chapter.title}"
    else:
        yield f"{chapter.title}  pid {chapter.pid}  {chapter.ended}  {chapter.duration_ms:.1f} ms  {' '.join(chapter.argv)}"
    if chapter.points:
        yield f"  passed {len(chapter.points)} points, the last: {chapter.points[-1]}"
    for name, text in (("stdout", chapter.stdout), ("stderr", chapter.stderr)):
        yield from (f"  {name}  {line[:400]}" for line in text.strip().splitlines()[-5:])
    if before is None:
        yield from (f"  {line}" for line in chapter.tree)
        return
    yield from (f"  {line}" for line in difference_lines(before.tree, chapter.tree) or ["nothing changed"])
