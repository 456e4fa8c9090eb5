"""The command line: one JSON object on stdout, words on stderr, the exit status of SPEC.md."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path

import killpoints
from product.durable.arguments import CommandLine, Parser
from product.durable.errors import DurableError
from product.sites import commands
from product.sites.commands import Answer, Asking, Saving
from product.sites.errors import SitesError
from product.sites.judging import WANTED_DEFAULT
from product.sites.layout import Layout
from product.sites.perform import BATCH_BYTES
from product.sites.probing import Bounds
from product.sites.states import State

EXAMPLES = """\
examples:
  python -m product.sites apply --state DIR --signals signals.jsonl   # {"id": "1", "outcome": "gone", "url": "https://a.example/"}
  python -m product.sites probe --state DIR https://example.com/team  # fetch, unless what is known says not to
  python -m product.sites explain --state DIR example.com             # why it is where it is, in one screen
  python -m product.sites revive --state DIR example.com              # out of any state, by hand
  python -m product.sites check --state DIR                           # replay the journal, compare

outcomes: network-failure gone transient challenge found empty pool-hit refused row

exit status: 0 done, 65 the input cannot be read, 70 journal or state are not what they were (look first),
             73 cannot save, 75 locked (try again), 78 configuration, 64 usage
"""


def main(argv: list[str]) -> int:
    arguments = COMMAND_LINE.read(argv)
    try:
        killpoints.arm()
    except killpoints.PointError as error:
        print(f"sites: {error}", file=sys.stderr)
        return 64
    try:
        answer = _run(arguments)
        _say({"ok": True, "command": arguments.command, **answer})
        _say_words(answer)
    except SitesError as error:
        return _fail(arguments.command, error)
    except DurableError as error:
        return _fail(arguments.command, SitesError(error.code, error.message, **error.detail))
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(arguments.command, SitesError.from_os_error(error))
    except KeyboardInterrupt:
        print("sites: interrupted; the next command goes on from what is saved", file=sys.stderr)
        return 130
    return 0


def _say(answer: Answer) -> None:
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    print(json.dumps(answer, ensure_ascii=plain), flush=True)


def _say_words(answer: Answer) -> None:
    for line in answer.get("story", []):
        print(line, file=sys.stderr)
    if answer.get("invalid"):
        print(
            f"sites: {answer['invalid']} lines are no signals, the first of them {answer['first_invalid'][0]}",
            file=sys.stderr,
        )
    if answer.get("unfinished_bytes"):
        print("sites: the last line has no end yet; it was not read", file=sys.stderr)


def _fail(command: str, error: SitesError) -> int:
    detail = json.loads(json.dumps(error.detail, default=str))
    _say({"ok": False, "command": command, "code": error.code, "message": error.message, "row": error.row,
          "detail": detail})  # fmt: skip
    print(f"sites: {error.code}: {error.message}", file=sys.stderr)
    if isinstance(detail.get("repair"), str):
        print(f"sites: {detail['repair']}", file=sys.stderr)
    return error.exit_status


def _run(arguments: argparse.Namespace) -> Answer:
    if arguments.command == "replay":
        return commands.replay(Path(arguments.journal).absolute())
    layout = Layout(Path(arguments.state).absolute())
    if arguments.command == "check":
        return commands.check(layout)
    now = int(time.time()) if arguments.now is None else arguments.now
    if arguments.command == "explain":
        return commands.explain(layout, arguments.site, now)
    if arguments.command == "status":
        return commands.status(layout, now, arguments.only)
    saving = Saving(now, arguments.wait, arguments.batch_bytes)
    match arguments.command:
        case "apply":
            return commands.apply(layout, Path(arguments.signals).absolute(), saving)
        case "consume":
            return commands.consume(layout, saving)
        case "revive":
            return commands.revive(layout, arguments.site, saving)
        case "expire":
            return commands.expire(layout, saving)
        case _:
            bounds = Bounds(arguments.timeout, arguments.timeout, arguments.redirects, arguments.body_bytes)
            asking = Asking(arguments.want, bounds, arguments.force, arguments.id)
            return commands.probe(layout, arguments.url, asking, saving)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 86400")
    return seconds


def _whole(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 12:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")


def _positive(text: str) -> int:
    if number := _whole(text):
        return number
    raise argparse.ArgumentTypeError(f"{text!r} is not above 0")


def _pattern(text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode(), re.IGNORECASE)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def _signal_id(text: str) -> str:
    if 0 < len(text) <= 190:
        return text
    raise argparse.ArgumentTypeError("an id has 1 to 190 characters")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m product.sites",
        description="Is a site worth fetching? A page's failure stays the page's; only accumulated evidence reaches the site.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    state = Parser(add_help=False)
    state.add_argument(
        "--state", required=True, metavar="DIR", help="where journal.jsonl, state.json and cursor.json lie"
    )
    clock = Parser(add_help=False)
    clock.add_argument("--now", type=_whole, metavar="SECONDS", help="since 1970, UTC, in place of the system's clock")
    saving = Parser(add_help=False, parents=[state, clock])
    saving.add_argument("--wait", type=_seconds, default=0.0, metavar="SECONDS", help="for the lock (default 0)")
    saving.add_argument(
        "--batch-bytes",
        type=_positive,
        default=BATCH_BYTES,
        metavar="BYTES",
        help="save after so much (default 64 MiB)",
    )

    sub = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    apply = sub.add_parser(
        "apply", parents=[saving], help="take signals into the journal, each id once, and apply them"
    )
    apply.add_argument("--signals", required=True, metavar="FILE", help="one JSON object a line: id, outcome, url, ...")
    sub.add_parser("consume", parents=[saving], help="apply what the journal has and the state has not: the recovery")
    probe = sub.add_parser("probe", parents=[saving], help="fetch a page, unless what is known says not to")
    probe.add_argument("url", metavar="URL")
    _add_asking(probe)
    revive = sub.add_parser("revive", parents=[saving], help="take a site out of its state by hand")
    revive.add_argument("site", metavar="DOMAIN")
    sub.add_parser("expire", parents=[saving], help="let go what is past its term")
    explain = sub.add_parser("explain", parents=[state, clock], help="why a site is where it is; reads only")
    explain.add_argument("site", metavar="DOMAIN")
    status = sub.add_parser("status", parents=[state, clock], help="the state of every site; reads only")
    status.add_argument(
        "--only", choices=[state.value for state in State], help="sites in this state (default: not NEUTRAL)"
    )
    sub.add_parser("check", parents=[state], help="replay the journal and compare; reads only")
    replay = sub.add_parser("replay", help="what a journal amounts to; reads only")
    replay.add_argument("journal", metavar="JOURNAL")
    return parser


def _add_asking(probe: argparse.ArgumentParser) -> None:
    bounds = Bounds()
    probe.add_argument("--id", type=_signal_id, help="of the signal; a probe of an id that is known asks nobody")
    probe.add_argument("--force", action="store_true", help="whatever is known")
    probe.add_argument("--want", type=_pattern, default=_pattern(WANTED_DEFAULT), metavar="REGEX",
                       help="what the page is fetched for (default: an address or a telephone number)")  # fmt: skip
    probe.add_argument("--timeout", type=_seconds, default=bounds.total_s, metavar="SECONDS",
                       help=f"for one page with all its redirects (default {bounds.total_s:g})")  # fmt: skip
    probe.add_argument("--redirects", type=_whole, default=bounds.redirects, metavar="N", help="at most (default 5)")
    probe.add_argument("--body-bytes", type=_positive, default=bounds.body_bytes, metavar="BYTES",
                       help="how much of a page is looked at (default 1 MiB)")  # fmt: skip


COMMAND_LINE = CommandLine(_parser())
