"""The command line: one JSON object on stdout, words on stderr, exit statuses of the SPEC."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from product.signals.cli import main
from tests.signals.helpers import REPOSITORY, TIMEOUT_S, Bench, needs_posix, padded, signal_of


def test_help_has_examples_and_the_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = capsys.readouterr().out
    for words in ("examples:", "exit status:", "scan", "watch", "show", "check", "adopt"):
        assert words in text


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["count"],
        ["scan", "--state", "s"],
        ["scan", "--file", "f"],
        ["show", "--state", "s", "--top", "0"],
        ["show", "--state", "s", "--top", "-1"],
        ["scan", "--file", "f", "--state", "s", "--durability", "none"],
        ["scan", "--file", "f", "--state", "s", "--batch-bytes", "9" * 4400],
        ["scan", "--file", "f", "--state", "s", "--wait", "nan"],
        ["check", "--file", "f", "--state", "s", "--moved"],
    ],
)
def test_wrong_usage_is_64_and_words(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(argv)
    assert raised.value.code == 64
    said = capsys.readouterr()
    assert said.out == "" and "usage:" in said.err


@needs_posix
@pytest.mark.parametrize("kind", ["missing", "directory", "fifo"])
def test_a_file_that_cannot_be_read_is_65_and_makes_no_state(bench: Bench, kind: str) -> None:
    bench.file.unlink()
    if kind == "directory":
        bench.file.mkdir()
    elif kind == "fifo":
        os.mkfifo(bench.file)
    process = bench.start("scan")
    out, _ = process.communicate(timeout=TIMEOUT_S)  # a FIFO is not waited for
    assert (process.returncode, json.loads(out)["code"]) == (65, "E_INPUT")
    assert not bench.state.exists()


@needs_posix
def test_a_state_behind_a_link_is_78(bench: Bench) -> None:
    (bench.root / "real").mkdir()
    bench.state.symlink_to(bench.root / "real")
    for command in ("scan", "show", "check", "adopt"):
        refused = bench.run(command)
        assert (refused.status, refused.code) == (78, "E_PATH_REPARSE"), command


@needs_posix
def test_a_state_below_a_link_is_78_and_not_made(bench: Bench) -> None:
    (bench.root / "real").mkdir()
    (bench.root / "link").symlink_to(bench.root / "real")
    bench.state = bench.root / "link" / "state"
    refused = bench.scan()
    assert (refused.status, refused.code) == (78, "E_PATH_REPARSE")
    assert not any((bench.root / "real").iterdir())


def test_only_scan_makes_the_state(bench: Bench) -> None:
    for command in ("show", "check", "adopt"):
        assert bench.run(command).status == 78
        assert not bench.state.exists()
    bench.scan().require_done()
    assert bench.run("show").require_done()["counts"] == {}
    assert bench.run("check").require_done()["total"] == 0


def test_show_ranks_by_count_then_by_key(bench: Bench) -> None:
    bench.append(*(signal_of(key) for key in "bbacab"), signal_of("ß"), b"no signal\n")
    bench.scan().require_done()
    shown = bench.run("show", "--top", "2").require_done()
    assert list(shown["counts"].items()) == [("b", 3), ("a", 2)]
    assert (shown["keys"], shown["total"], shown["rejected"]) == (4, 7, {"not-json": {"count": 1, "first": [92]}})
    assert list(bench.counts().items()) == [("b", 3), ("a", 2), ("c", 1), ("ß", 1)]


def test_relative_paths_are_those_of_the_working_directory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.append(padded("K"))
    monkeypatch.chdir(bench.root)
    assert main(["scan", "--file", bench.file.name, "--state", bench.state.name]) == 0
    assert bench.counts() == {"K": 1}


@needs_posix
def test_a_terminal_that_cannot_show_a_key_gets_it_escaped(bench: Bench) -> None:
    bench.append(signal_of("ключ 😀"))
    bench.scan().require_done()
    process = bench.start("show", environment={"PYTHONIOENCODING": "latin-1"})
    out, words = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, words) == (0, b"")
    assert json.loads(out)["counts"] == {"ключ 😀": 1}


@needs_posix
def test_a_reader_that_has_seen_enough_is_no_error(bench: Bench) -> None:
    bench.append(*(signal_of(f"key {number}") for number in range(20_000)))
    bench.scan().require_done()
    process = bench.start("show")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    words = process.stderr.read()
    process.stderr.close()
    assert (process.wait(TIMEOUT_S), words) == (0, b"")


@needs_posix
def test_ctrl_c_in_the_middle_is_130_and_loses_nothing(bench: Bench) -> None:
    bench.append(padded("K") * 2)
    reader, control = os.pipe()
    resume, resume_writer = os.pipe()
    channels = {"KILLPOINTS_CONTROL": str(control), "KILLPOINTS_RESUME": str(resume)}
    process = bench.start("scan", plan="signals.counted=pause", environment=channels, pass_fds=(control, resume))
    os.close(control)
    os.close(resume)
    assert os.read(reader, 1000).startswith(b"pause")
    process.send_signal(signal.SIGINT)
    out, words = process.communicate(timeout=TIMEOUT_S)
    os.close(reader)
    os.close(resume_writer)
    assert (process.returncode, out) == (130, b"")
    assert words.startswith(b"signals: interrupted") and words.count(b"\n") == 1
    assert bench.scan().require_done()["replayed"] == 2
    bench.require_exact()


def test_a_point_that_nobody_declares_is_64(bench: Bench) -> None:
    process = bench.start("scan", plan="signals.conts=kill")
    _, words = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 64
    assert b"signals.counts" in words


def test_watchfiles_is_not_imported_by_the_other_commands(tmp_path: Path) -> None:
    program = "import sys, product.signals.cli; print([name for name in sys.modules if 'watchfiles' in name])"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
