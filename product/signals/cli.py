"""The command line: one JSON object on stdout (``watch``: one for each scan), words on stderr, the exit status of SPEC.md."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import killpoints
from product.durable.arguments import CommandLine, Parser
from product.durable.cursor import Durability
from product.durable.errors import DurableError
from product.signals import commands
from product.signals.commands import BATCH_BYTES, Answer, Saving
from product.signals.errors import SignalsError
from product.signals.layout import Layout
from product.signals.states import Claim

EXAMPLES = """\
examples:
  python -m product.signals scan  --file signals.jsonl --state counts   # a line: {"key": "K", ...}
  python -m product.signals watch --file signals.jsonl --state counts   # until Ctrl-C
  python -m product.signals show  --state counts --top 10
  python -m product.signals check --file signals.jsonl --state counts   # recount from zero, compare
  python -m product.signals adopt --file signals.jsonl --state counts   # after the file was rotated

exit status: 0 done, 65 the file cannot be read, 70 file or state are not what they were (look first),
             73 cannot save, 75 locked (try again), 78 configuration, 64 usage
"""


def main(argv: list[str]) -> int:
    arguments = COMMAND_LINE.read(argv)
    try:
        killpoints.arm()
    except killpoints.PointError as error:
        print(f"signals: {error}", file=sys.stderr)
        return 64
    try:
        for answer in _run(arguments):
            _say({"ok": True, "command": arguments.command, **answer})
    except SignalsError as error:
        return _fail(arguments.command, error)
    except DurableError as error:
        return _fail(arguments.command, SignalsError(error.code, error.message, **error.detail))
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(arguments.command, SignalsError.from_os_error(error))
    except KeyboardInterrupt:
        print("signals: interrupted; the next scan goes on from what is saved", file=sys.stderr)
        return 130
    return 0


def _say(answer: Answer) -> None:
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    print(json.dumps(answer, ensure_ascii=plain), flush=True)


def _fail(command: str, error: SignalsError) -> int:
    detail = json.loads(json.dumps(error.detail, default=str))
    _say({"ok": False, "command": command, "code": error.code, "message": error.message, "row": error.row,
          "detail": detail})  # fmt: skip
    print(f"signals: {error.code}: {error.message}", file=sys.stderr)
    if isinstance(detail.get("repair"), str):
        print(f"signals: {detail['repair']}", file=sys.stderr)
    return error.exit_status


def _run(arguments: argparse.Namespace) -> Iterable[Answer]:
    layout = Layout(Path(arguments.state).absolute())
    if arguments.command == "show":
        return [commands.show(layout, arguments.top)]
    file = Path(arguments.file).absolute()
    if arguments.command == "check":
        return [commands.check(layout, file)]
    saving = Saving(Durability(arguments.durability), arguments.wait, arguments.batch_bytes)
    if arguments.command == "adopt":
        return [commands.adopt(layout, file, Claim.MOVED if arguments.moved else Claim.NEW, saving)]
    if arguments.command == "watch":
        return commands.watch(layout, file, saving)
    return [commands.scan(layout, file, saving)]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 86400")
    return seconds


def _positive(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 15 and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m product.signals",
        description="Counts how often each key is seen in an append-only file: no line twice, none missed, whatever dies.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    state = Parser(add_help=False)
    state.add_argument("--state", required=True, metavar="DIR", help="where counts.json and cursor.json lie")
    file = Parser(add_help=False)
    file.add_argument("--file", required=True, metavar="FILE", help="one JSON object a line, with a string 'key'")
    saving = Parser(add_help=False)
    saving.add_argument(
        "--durability",
        choices=[durability.value for durability in Durability],
        default=Durability.POWER.value,
        help="what a save survives: the death of the process, or a power cut too (default)",
    )
    saving.add_argument("--wait", type=_seconds, default=0.0, metavar="SECONDS", help="for the lock (default 0)")
    saving.set_defaults(batch_bytes=BATCH_BYTES)
    batches = Parser(add_help=False)
    batches.add_argument(
        "--batch-bytes",
        type=_positive,
        metavar="BYTES",
        default=BATCH_BYTES,
        help="save after so much; a crash makes at most this be read again (default 64 MiB)",
    )

    sub = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    sub.add_parser("scan", parents=[state, file, saving, batches], help="count what is new in the file")
    sub.add_parser("watch", parents=[state, file, saving, batches], help="scan now, and whenever the file grows")
    show = sub.add_parser("show", parents=[state], help="the counts, the most frequent first; reads only")
    show.add_argument("--top", type=_positive, metavar="N", help="only the first N (default: all)")
    sub.add_parser("check", parents=[state, file], help="recount from zero and compare; reads only")
    adopt = sub.add_parser("adopt", parents=[state, file, saving], help="accept another file, or a truncated one")
    adopt.add_argument(
        "--moved", action="store_true", help="it is the same file in another place: its lines are counted"
    )
    return parser


COMMAND_LINE = CommandLine(_parser())
