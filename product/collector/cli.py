"""The command line: one JSON object on stdout, words on stderr, the exit status of SPEC.md."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from datetime import UTC, datetime

import killpoints
from product.collector import commands, upkeep
from product.collector.errors import CollectorError
from product.collector.evidence import EvidenceRejected
from product.collector.manifests import SEGMENT_MAX_BYTES
from product.collector.shape import NAME
from product.durable.arguments import CommandLine, Parser
from product.durable.errors import DurableError

EXAMPLES = """\
examples:
  export COLLECTOR_STATE_DIR=/var/lib/collector COLLECTOR_ARCHIVE_DIR=/srv/archive
  python -m product.collector import-feed feed.json --task creator-42 --out evidence.json
  python -m product.collector commit --evidence evidence.json
  python -m product.collector recover      # after a crash; the next commit does it too
  python -m product.collector status
  python -m product.collector explain      # what is in the way, and what would take it away
  python -m product.collector check        # is everything as it was written?
  python -m product.collector move-completed
  python -m product.collector handoff --out /mnt/usb/creator-42

exit status: 0 done, 65 evidence refused, 70 ambiguous or unproven (look first), 73 cannot create,
             75 busy or locked (try again), 78 configuration, 64 usage, 130 interrupted
"""


def main(argv: list[str]) -> int:
    arguments = COMMAND_LINE.read(argv)
    if getattr(arguments, "at", True) is None:
        arguments.at = datetime.now(UTC)
    try:
        killpoints.arm()
    except killpoints.PointError as error:
        print(f"collector: {error}", file=sys.stderr)
        return 64
    try:
        answer = _run(arguments)
    except CollectorError as error:
        return _fail(arguments.command, error)
    except (DurableError, EvidenceRejected) as error:
        return _fail(arguments.command, CollectorError(error.code, error.message, **error.detail))
    except OSError as error:
        return _fail(arguments.command, CollectorError.from_os_error(error))
    except KeyboardInterrupt:
        message = "what was in flight goes on with the next commit or recover"
        return _fail(arguments.command, CollectorError("E_INTERRUPTED", message))
    words = answer.pop("words", None)
    print(json.dumps({"ok": True, "command": arguments.command, **answer}))
    for line in words or []:  # type: ignore[attr-defined]
        print(line, file=sys.stderr)
    for warning in answer.get("warnings") or []:  # type: ignore[attr-defined]
        print(f"collector: {warning['code']}: {warning['path']}: {warning['why']}", file=sys.stderr)
    return 0


def _fail(command: str, error: CollectorError) -> int:
    fields = {"code": error.code, "message": error.message, "row": error.row, "detail": error.detail}
    print(json.dumps({"ok": False, "command": command, **fields, **error.beside}, default=str))
    print(f"collector: {error.code}: {error.message}", file=sys.stderr)
    return error.exit_status


def _run(arguments: argparse.Namespace) -> commands.Answer:
    if arguments.command == "import-feed":
        return commands.import_feed(
            feed_file=arguments.feed,
            out=arguments.out,
            task_id=arguments.task,
            run_id=arguments.run_id or _new_run_id(arguments.at),
            at=arguments.at,
            cursor_before=arguments.cursor,
        )
    layout = commands.roots(arguments.state_dir, arguments.archive_dir)
    if arguments.command == "status":
        return commands.status(layout)
    if arguments.command == "check":
        return upkeep.check(layout, wait_s=arguments.wait)
    if arguments.command == "explain":
        return upkeep.explain(layout)
    if arguments.command == "begin":
        return commands.begin(
            layout,
            task_id=arguments.task,
            run_id=arguments.run_id or _new_run_id(arguments.at),
            at=arguments.at,
            wait_s=arguments.wait,
        )
    if arguments.command == "commit":
        return commands.commit(
            layout,
            evidence_file=arguments.evidence,
            wait_s=arguments.wait,
            segment_max_bytes=arguments.segment_max_bytes,
        )
    if arguments.command == "move-completed":
        return upkeep.move_completed(layout, wait_s=arguments.wait, segment_max_bytes=arguments.segment_max_bytes)
    if arguments.command == "handoff":
        return upkeep.handoff(
            layout, out=arguments.out, wait_s=arguments.wait, segment_max_bytes=arguments.segment_max_bytes
        )
    return commands.recover(layout, wait_s=arguments.wait, segment_max_bytes=arguments.segment_max_bytes)


def _new_run_id(at: datetime) -> str:
    return f"{at:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name: 1 to 64 letters, digits and '-', and no Windows device")
    return text


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise argparse.ArgumentTypeError(f"{text!r} has no zone: write 2026-11-30T12:34:56Z")
        if not 1970 < at.year < 9999:  # strftime and the ring of hours know no others
            raise ValueError
        return at.astimezone(UTC)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 2026-11-30T12:34:56Z") from error


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 86400")
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m product.collector",
        description="Appends the new posts of a page to a formal archive, at most once, whatever dies and whenever.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common = Parser(add_help=False)
    common.add_argument("--state-dir", help="absolute path (or COLLECTOR_STATE_DIR)")
    common.add_argument("--archive-dir", help="absolute path (or COLLECTOR_ARCHIVE_DIR)")
    common.add_argument("--wait", type=_seconds, default=0.0, metavar="SECONDS", help="for the StateLock (default 0)")
    writing = Parser(add_help=False)
    writing.add_argument("--segment-max-bytes", type=int, default=SEGMENT_MAX_BYTES, help=argparse.SUPPRESS)
    named = Parser(add_help=False)
    named.add_argument("--task", type=_name, required=True, help="whose page: a name")
    named.add_argument("--run-id", type=_name, help="default: made from the time")
    named.add_argument("--at", type=_instant, help="when (default: now)")

    sub = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    sub.add_parser("begin", parents=[common, named], help="take this hour for a run whose evidence is still to come")
    commit = sub.add_parser("commit", parents=[common, writing], help="append the new posts of the evidence")
    commit.add_argument("--evidence", required=True, metavar="FILE")
    sub.add_parser("recover", parents=[common, writing], help="finish what a dead process left")
    sub.add_parser("status", parents=[common], help="what is in flight, what was last; reads only")
    sub.add_parser("check", parents=[common], help="verify everything, name every finding; writes nothing")
    sub.add_parser("explain", parents=[common], help="which row applies now, what is in the way; takes no lock")
    sub.add_parser(
        "move-completed", parents=[common, writing], help="move the evidence of finished runs to the archive"
    )
    handoff = sub.add_parser("handoff", parents=[common, writing], help="a bundle of the archive with SHA256SUMS")
    handoff.add_argument("--out", required=True, metavar="DIR", help="must not exist, and not lie inside the roots")
    feed = sub.add_parser("import-feed", parents=[named], help="turn a feed answer into evidence")
    feed.add_argument("feed", metavar="FILE")
    feed.add_argument("--out", metavar="FILE", help="write the evidence here (must not exist); default: in the answer")
    feed.add_argument("--cursor", help="the cursor that the feed was asked with (default: the first page)")
    return parser


COMMAND_LINE = CommandLine(_parser())
