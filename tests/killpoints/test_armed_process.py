"""A program armed from outside, by its environment: real processes, real pipes, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="descriptors and signals as POSIX has them")

REPOSITORY = Path(__file__).resolve().parents[2]
POINTS = """
from killpoints import declare
SAVED = declare("shop.saved", "the cart is durable", "cart.md 3", steps=("renamed",))
PAID = declare("shop.paid", "the money is taken")
"""
SHOP = """
import os, sys
from killpoints import attempt, reach
from shop_points import PAID, SAVED

def take(text):
    print(text, flush=True)

reach(SAVED)
for number in range(2):
    try:
        attempt(PAID, take, f"paid {number}")
    except OSError as error:
        print(f"refused: {error.strerror}", flush=True)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop_points.py").write_text(POINTS)
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@dataclass(frozen=True)
class Ended:
    status: int
    out: list[str]
    err: str
    records: list[str]


class Started:
    """A program with a control pipe and a resume pipe, and whatever else is in its environment."""

    def __init__(self, shop: Path, plan: str | None, program: str = "shop.py", **environ: str) -> None:
        self.control, control = os.pipe()
        resume, self.resume = os.pipe()
        variables = {
            "KILLPOINTS_CONTROL": str(control),
            "KILLPOINTS_RESUME": str(resume),
            "PYTHONPATH": str(REPOSITORY),
        }
        if plan is not None:
            variables["KILLPOINTS"] = plan
        self.process = subprocess.Popen(
            [sys.executable, program],
            cwd=shop,
            env={**os.environ, "PYTHONUNBUFFERED": "", **variables, **environ},
            pass_fds=(control, resume),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(control)
        os.close(resume)

    def end(self) -> Ended:
        out, err = self.process.communicate(timeout=60)
        with open(self.control) as control:
            lines = control.read().splitlines()
        os.close(self.resume)
        return Ended(self.process.returncode, out.splitlines(), err, [" ".join(line.split("\t")) for line in lines])

    @property
    def pid(self) -> int:
        return self.process.pid


def run(shop: Path, plan: str | None, program: str = "shop.py", **environ: str) -> tuple[Ended, int]:
    started = Started(shop, plan, program, **environ)
    return started.end(), started.pid


def test_a_kill_at_the_second_hit_comes_after_the_act(shop: Path) -> None:
    ended, pid = run(shop, "shop.paid#2=kill")
    assert ended.status == -signal.SIGKILL
    assert ended.out == ["paid 0", "paid 1"]
    assert ended.records == [f"kill shop.paid 2 {pid}"]


def test_a_kill_at_a_point_that_is_only_reached(shop: Path) -> None:
    ended, pid = run(shop, "shop.saved=kill")
    assert (ended.status, ended.out, ended.records) == (-signal.SIGKILL, [], [f"kill shop.saved 1 {pid}"])


def test_a_term_lets_the_program_clean_up(shop: Path) -> None:
    program = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n" + SHOP
    (shop / "polite.py").write_text(program)
    assert run(shop, "shop.saved=term")[0].status == -signal.SIGTERM
    ended, pid = run(shop, "shop.saved=term", "polite.py")
    assert (ended.status, ended.records) == (3, [f"term shop.saved 1 {pid}"])


def test_an_error_comes_instead_of_the_act(shop: Path) -> None:
    ended, pid = run(shop, "shop.paid#1=error:ENOSPC")
    assert ended.out == ["refused: No space left on device (injected at shop.paid#1)", "paid 1"]
    assert (ended.status, ended.records) == (0, [f"error shop.paid 1 {pid}"])


def test_a_pause_waits_for_one_byte(shop: Path) -> None:
    started = Started(shop, "shop.saved=pause,shop.paid#1=pause")
    for point in ("shop.saved", "shop.paid"):
        record = os.read(started.control, 4096)
        assert record == f"pause\t{point}\t1\t{started.pid}\n".encode()
        os.write(started.resume, b"\n")
    ended = started.end()
    assert (ended.status, ended.out) == (0, ["paid 0", "paid 1"])


def test_a_pause_ends_the_program_when_its_controller_is_gone(shop: Path) -> None:
    """Running on unobserved would be worse."""
    started = Started(shop, "shop.saved=pause")
    os.read(started.control, 4096)
    os.close(started.resume)
    out, _ = started.process.communicate(timeout=60)
    os.close(started.control)
    assert started.process.returncode == -signal.SIGKILL and out == ""


def test_a_pause_by_hand_stops_the_program(shop: Path) -> None:
    """Without a resume pipe a person lets it go on, and is told how."""
    process = subprocess.Popen(
        [sys.executable, "shop.py"],
        cwd=shop,
        env={**os.environ, "KILLPOINTS": "shop.saved=pause", "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and out == "paid 0\npaid 1\n"
    assert f"paused at shop.saved#1; go on with: kill -CONT {process.pid}" in err


def test_a_trace_records_what_is_only_passed(shop: Path) -> None:
    ended, pid = run(shop, None, KILLPOINTS_TRACE="1")
    assert ended.records == [f"pass shop.saved 1 {pid}", f"pass shop.paid 1 {pid}", f"pass shop.paid 2 {pid}"]
    killed = run(shop, "shop.paid#2=kill", KILLPOINTS_TRACE="1")[0]
    assert killed.records[-1].startswith("kill shop.paid 2 ") and killed.status == -signal.SIGKILL


@pytest.mark.parametrize("plan", [None, "", "  "])
def test_disarmed_nothing_is_recorded(shop: Path, plan: str | None) -> None:
    ended, _ = run(shop, plan)
    assert (ended.status, ended.out, ended.records, ended.err) == (0, ["paid 0", "paid 1"], [], "")
    (shop / "careless.py").write_text("from killpoints import reach\nreach('nobody declared this')\n")
    assert run(shop, plan, "careless.py")[0].status == 0, "disarmed, not even a name is looked at"


@pytest.mark.parametrize("trace", ["", "0", "yes"])
def test_a_trace_is_asked_for_with_1(shop: Path, trace: str) -> None:
    assert run(shop, None, KILLPOINTS_TRACE=trace)[0].records == []


# --- what is wrong with an arming is never silent


def test_an_unknown_name_is_refused_at_the_first_point(shop: Path) -> None:
    ended, _ = run(shop, "shop.payd=kill")
    assert ended.status == 64 and ended.out == []
    assert "unknown kill point 'shop.payd'; the nearest known: shop.paid" in ended.err


@pytest.mark.parametrize("body", ["", "import sys\nsys.exit(0)", "raise ValueError('x')"])
def test_an_unknown_name_is_refused_when_no_point_is_reached(shop: Path, body: str) -> None:
    """A test that arms a misspelt name must not end well because the program did something else."""
    (shop / "idle.py").write_text(f"import shop_points\nprint('idle')\n{body}\n")
    ended, _ = run(shop, "shop.payd=kill", "idle.py")
    assert ended.status == 64 and ended.out == ["idle"]
    assert "killpoints: KILLPOINTS: unknown kill point 'shop.payd'; the nearest known: shop.paid" in ended.err


def test_a_known_name_that_is_not_reached_ends_as_the_program_does(shop: Path) -> None:
    (shop / "idle.py").write_text("import shop_points, sys\nsys.exit(3)\n")
    ended, _ = run(shop, "shop.paid=kill", "idle.py")
    assert (ended.status, ended.err, ended.records) == (3, "", [])


def test_a_program_that_disarms_itself_ends_as_it_does(shop: Path) -> None:
    (shop / "calm.py").write_text("import killpoints, sys\nkillpoints.disarm()\nsys.exit(3)\n")
    ended, _ = run(shop, "shop.paid=kill", "calm.py")
    assert (ended.status, ended.err) == (3, "")


@pytest.mark.parametrize(
    ("plan", "environ", "says"),
    [
        ("shop.paid=explode", {}, "unknown action 'explode'"),
        ("shop.paid", {}, "cannot read 'shop.paid'"),
        ("shop.paid=error:ENOPSC", {}, "unknown errno 'ENOPSC'"),
        (
            "shop.paid=kill",
            {"KILLPOINTS_CONTROL": "three"},
            "KILLPOINTS_CONTROL='three' is not a file descriptor number",
        ),
        ("shop.paid=kill", {"KILLPOINTS_RESUME": "-1"}, "KILLPOINTS_RESUME='-1' is not a file descriptor number"),
        ("shop.paid=kill", {"KILLPOINTS_RESUME": "٣"}, "is not a file descriptor number"),
    ],
)
def test_a_text_that_cannot_be_read(shop: Path, plan: str, environ: dict[str, str], says: str) -> None:
    ended, _ = run(shop, plan, **environ)
    assert ended.status == 64 and ended.out == []
    assert ended.err.startswith("killpoints: KILLPOINTS: ") and says in ended.err
    assert "Traceback" not in ended.err


def test_what_was_printed_before_a_refusal_is_not_lost(shop: Path) -> None:
    (shop / "late.py").write_text("print('first')\nimport killpoints\nprint('second')\n")
    ended, _ = run(shop, "shop.paid=explode", "late.py")
    assert (ended.status, ended.out) == (64, ["first"])


def test_arming_after_the_imports_says_so_before_anything_is_done(shop: Path) -> None:
    (shop / "careful.py").write_text("import shop_points\nfrom killpoints import arm\narm()\nprint('did something')\n")
    ended, _ = run(shop, "shop.payd=kill", "careful.py")
    assert ended.status == 64 and ended.out == [] and "nearest known: shop.paid" in ended.err
    assert run(shop, "shop.paid=kill", "careful.py")[0].out == ["did something"]
    assert run(shop, None, "careful.py")[0].out == ["did something"]


# --- one process, and no other


def test_the_variables_are_for_this_process_only(shop: Path) -> None:
    """A descriptor number means something else in a program that it starts."""
    (shop / "parent.py").write_text(
        "import os, subprocess, sys, killpoints, shop_points\n"
        "print([name for name in os.environ if name.startswith('KILLPOINTS')], flush=True)\n"
        "sys.exit(subprocess.run([sys.executable, 'shop.py']).returncode)\n"
    )
    ended, _ = run(shop, "shop.paid=kill", "parent.py", KILLPOINTS_TRACE="1")
    assert (ended.status, ended.out, ended.records) == (0, ["[]", "paid 0", "paid 1"], [])


def test_a_forked_child_counts_its_own_hits(shop: Path) -> None:
    (shop / "forks.py").write_text(
        "import os\nfrom killpoints import reach\nfrom shop_points import SAVED\n"
        "reach(SAVED)\nreach(SAVED)\n"
        "child = os.fork()\n"
        "if child == 0:\n    reach(SAVED)\n    os._exit(0)\n"
        "os.waitpid(child, 0)\nprint(child)\nreach(SAVED)\n"
    )
    ended, pid = run(shop, "shop.saved#3=error:EIO", "forks.py", KILLPOINTS_TRACE="1")
    child = ended.out[0]
    assert ended.records == [
        f"pass shop.saved 1 {pid}",
        f"pass shop.saved 2 {pid}",
        f"pass shop.saved 1 {child}",
        f"error shop.saved 3 {pid}",
    ]


def test_a_kill_in_a_forked_child_ends_the_child(shop: Path) -> None:
    (shop / "forks.py").write_text(
        "import os\nfrom killpoints import reach\nfrom shop_points import SAVED\n"
        "child = os.fork()\n"
        "if child == 0:\n    reach(SAVED)\n    os._exit(0)\n"
        "print(child, os.waitpid(child, 0)[1])\n"
    )
    ended, _ = run(shop, "shop.saved=kill", "forks.py")
    child, status = ended.out[0].split()
    assert (ended.status, status, ended.records) == (0, "9", [f"kill shop.saved 1 {child}"])


# --- python -m killpoints


def list_points(shop: Path, *modules: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "killpoints", *modules],
        cwd=shop,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_catalogue_of_a_module(shop: Path) -> None:
    done = list_points(shop, "shop_points")
    assert done.returncode == 0
    assert json.loads(done.stdout) == [
        {"name": "shop.saved", "says": "the cart is durable", "spec": "cart.md 3"},
        {"name": "shop.saved/renamed", "says": "the cart is durable: renamed", "spec": "cart.md 3"},
        {"name": "shop.paid", "says": "the money is taken", "spec": ""},
    ]
    (shop / "more_points.py").write_text('from killpoints import declare\ndeclare("more.here", "a point more")\n')
    names = [point["name"] for point in json.loads(list_points(shop, "shop_points", "more_points").stdout)]
    assert names[0] == "shop.saved" and names[-1] == "more.here"


def test_the_catalogue_of_nothing(shop: Path) -> None:
    assert list_points(shop).returncode == 64
    asked = list_points(shop, "--help")
    assert asked.returncode == 0 and "python -m killpoints MODULE" in asked.stdout
    missing = list_points(shop, "no_such_module")
    assert missing.returncode == 1 and "No module named 'no_such_module'" in missing.stderr
