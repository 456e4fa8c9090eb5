"""The kill points of these tests, declared as a product declares its own, and a state lock that uses them."""

from __future__ import annotations

from pathlib import Path

from killpoints import declare
from product.durable import files
from product.durable.lock import StateLock, StateLockPoints

PUT_NEW = declare("durable-test.put_new", "the file is there", steps=files.PUT_NEW_STEPS)
PUT = declare("durable-test.put", "the file has its new bytes", steps=files.PUT_STEPS)
MOVE = declare("durable-test.move", "the file has its new name", steps=files.MOVE_NEW_STEPS)
EXCHANGE = declare("durable-test.exchange", "the candidate is in place", steps=files.EXCHANGE_STEPS)
REMOVE = declare("durable-test.remove", "the file is gone", steps=files.REMOVE_STEPS)
DIRECTORY = declare("durable-test.directory", "the directory is there", steps=files.MAKE_DIRECTORY_STEPS)
CLEAR = declare("durable-test.clear", "the temporary file is gone")

LOCK = StateLockPoints(
    locked=declare("durable-test.lock.locked", "the kernel lock is held, no metadata yet"),
    owner_quarantined=declare(
        "durable-test.lock.owner_quarantined", "a dead owner's metadata is in quarantine", steps=files.MOVE_NEW_STEPS
    ),
    owner=declare("durable-test.lock.owner", "our metadata is in place", steps=files.PUT_STEPS),
    owner_removed=declare("durable-test.lock.owner_removed", "our metadata is gone", steps=files.REMOVE_STEPS),
    released=declare("durable-test.lock.released", "the kernel lock is free"),
    lock_made=declare("durable-test.lock.made", "the lock file is there", steps=files.PUT_NEW_STEPS),
    quarantine_made=declare(
        "durable-test.lock.quarantine_made", "the quarantine is there", steps=files.MAKE_DIRECTORY_STEPS
    ),
)

LOCK_NAME = ".collector.lock"
OWNER_NAME = ".collector.lock.owner.json"
QUARANTINE_NAME = ".collector.lock.owner.quarantine"


def make_lock(directory: Path, *, run_id: str = "run-1", wait_s: float = 0.0) -> StateLock:
    return StateLock(
        directory / LOCK_NAME,
        directory / OWNER_NAME,
        directory / QUARANTINE_NAME,
        run_id=run_id,
        points=LOCK,
        wait_s=wait_s,
    )
