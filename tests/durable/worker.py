"""``python -m tests.durable.worker COMMAND ARGUMENT ...``: one real process of a test; its answers are JSON lines.

It says what it has reached on stdout, and waits on stdin for a line (or the end of its parent) to go on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from product.durable import files, identity
from product.durable.errors import DurableError
from product.durable.files import Digest
from tests.durable import points
from tests.durable.points import make_lock

OLD, NEW = b"old bytes\n", b"new bytes, and more of them\n"


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def wait_for_word() -> None:
    sys.stdin.readline()


def put_new(directory: str) -> None:
    files.put_new(Path(directory) / "target", NEW, point=points.PUT_NEW)


def put(directory: str) -> None:
    files.put(Path(directory) / "target", NEW, point=points.PUT)


def move(directory: str) -> None:
    root = Path(directory)
    files.move_new(root / "source", root / "there" / "target", expected=Digest.of(OLD), point=points.MOVE)


def exchange(directory: str) -> None:
    root = Path(directory)
    digests = Digest.of(OLD), Digest.of(NEW)
    candidate = root / "candidates" / "candidate"
    files.put_exchanged(candidate, root / "target", base=digests[0], candidate_digest=digests[1], point=points.EXCHANGE)


def remove(directory: str) -> None:
    files.remove(Path(directory) / "target", expected=Digest.of(OLD), point=points.REMOVE)


def make_directory(directory: str) -> None:
    files.make_directory(Path(directory) / "target", point=points.DIRECTORY)


def put_beyond_limit(directory: str, limit_bytes: str) -> None:
    """The kernel itself stops the write in the middle, as a full disk does."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit_bytes), int(limit_bytes)))
    put(directory)


def identify() -> None:
    """Say who this is, and live until told otherwise."""
    own = identity.own_identity()
    say(pid=own.pid, created_at=own.created_at)
    wait_for_word()


def classify(pid: str, created_at: str, uid: str = "0") -> None:
    """Classify a holder, as another user if told so."""
    if uid != "0":
        os.setgroups([])  # group 0 sees everything in /proc
        os.setresgid(int(uid), int(uid), int(uid))
        os.setresuid(int(uid), int(uid), int(uid))
    say(holder=identity.classify_holder(int(pid), created_at).value)


def classify_child() -> None:
    """Classify a living child of ours."""
    child = os.fork()
    if child == 0:
        signal.pause()
    own = identity.own_identity()
    say(holder=identity.classify_holder(child, own.created_at).value, own=own.created_at)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def hold(directory: str, run_id: str = "holder") -> None:
    """Hold the lock until told; say when it is held, and when it is released."""
    root = Path(directory)
    with make_lock(root, run_id=run_id) as lock:
        say(held=True, pid=os.getpid(), row=lock.owner_classification)
        wait_for_word()
        files.put(root / "work", NEW, point=points.PUT)
    say(held=False)


def contend(directory: str, wait_s: str = "0") -> None:
    """Try once (or wait), and say what came of it."""
    lock = make_lock(Path(directory), run_id="contender", wait_s=float(wait_s))
    try:
        with lock:
            say(ok=True, row=lock.owner_classification)
    except DurableError as error:
        say(ok=False, code=error.code, message=error.message, row=lock.owner_classification)


def contend_with_stub(directory: str) -> None:
    """As contend, where the system grants every lock."""
    import fcntl

    fcntl.flock = lambda descriptor, operation: None
    contend(directory)


def hold_and_fork(directory: str, way: str) -> None:
    """A holder whose forked child releases (B028), or leaves by the end of the ``with``, or lives on."""
    lock = make_lock(Path(directory), run_id="parent")
    with lock:
        child = os.fork()
        if child == 0:
            if way == "release":
                lock.release()
                os._exit(0)
            if way == "exit":
                sys.exit(0)  # through __exit__, atexit and the end of the interpreter
            say(child=os.getpid())
            wait_for_word()  # stdin ends with the test
            os._exit(0)
        if way != "live":
            _, status = os.waitpid(child, 0)
            say(held=lock.held, child_status=status)
        wait_for_word()
    say(held=False)


def take_turns(directory: str, log: str, turns: str) -> None:
    """Enter and leave the critical section some times; every entry and exit is one appended line."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    for turn in range(int(turns)):
        with make_lock(Path(directory), run_id=f"turn-{turn}", wait_s=60):
            os.write(descriptor, f"enter {os.getpid()}\n".encode())
            os.write(descriptor, f"exit {os.getpid()}\n".encode())


def reuse_pid(directory: str) -> None:
    """In a fresh pid namespace: an owner dies, an impostor gets its pid, then the impostor goes (B005)."""
    root, pid = Path(directory), 300
    owner = fork_as(pid, lambda: _die_as_owner(root))
    os.waitpid(owner, 0)
    record = json.loads((root / points.OWNER_NAME).read_bytes())
    while True:  # until the kernel's clock has ticked: the impostor was made later
        impostor = fork_as(pid, signal.pause)
        stat = Path(f"/proc/{impostor}/stat").read_text()
        if stat.rsplit(")", 1)[1].split()[19] != record["process_created_at"].rsplit(":", 1)[1]:
            break
        os.kill(impostor, signal.SIGKILL)
        os.waitpid(impostor, 0)
    say(record=record["pid"], impostor=impostor, holder=_classify_record(record))
    contend(directory)
    os.kill(impostor, signal.SIGKILL)
    os.waitpid(impostor, 0)
    contend(directory)


def _die_as_owner(root: Path) -> None:
    make_lock(root, run_id="owner").acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def _classify_record(record: dict[str, object]) -> str:
    return identity.classify_holder(int(str(record["pid"])), str(record["process_created_at"])).value


def fork_as(pid: int, act: Callable[[], object]) -> int:
    """Fork a child with that very pid (ours alone is the namespace, so nobody takes it in between)."""
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
    child = os.fork()
    if child == 0:
        act()
        os._exit(0)
    if child != pid:
        raise RuntimeError(f"got pid {child}, not {pid}")
    return child


COMMANDS: dict[str, Callable[..., None]] = {
    act.__name__: act
    for act in (
        put_new,
        put,
        move,
        exchange,
        remove,
        make_directory,
        put_beyond_limit,
        identify,
        classify,
        classify_child,
        hold,
        contend,
        contend_with_stub,
        hold_and_fork,
        take_turns,
        reuse_pid,
    )
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
