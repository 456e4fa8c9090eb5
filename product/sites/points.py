"""Every kill point of the sites. The inner steps are those of the primitive that is given the point."""

from killpoints import declare
from product.durable.append import APPEND_STEPS
from product.durable.cursor import ConsumerPoints
from product.durable.files import MAKE_DIRECTORY_STEPS, PUT_NEW_STEPS, PUT_STEPS
from product.durable.kernel_lock import KernelLockPoints

DIRECTORY = declare(
    "sites.layout.directory", "the state directory is made", "SPEC.md Files", steps=MAKE_DIRECTORY_STEPS
)

LOCK = KernelLockPoints(
    lock_made=declare("sites.lock.made", "the stable lock file is made", "SPEC.md Files", steps=PUT_NEW_STEPS),
    locked=declare("sites.lock.locked", "the kernel lock is held, nothing is read yet", "SPEC.md Order"),
    released=declare("sites.lock.released", "the kernel lock is released", "SPEC.md Order"),
)

FETCHED = declare("sites.fetched", "a server was asked, nobody knows of it yet", "SPEC.md Probe")

JOURNAL_MADE = declare("sites.journal-made", "the empty journal is made", "SPEC.md Files", steps=PUT_NEW_STEPS)
JOURNAL = declare(
    "sites.journal", "the signals are in the journal, the state does not know them", "SPEC.md Order",
    steps=APPEND_STEPS,
)  # fmt: skip

CONSUMER = ConsumerPoints(
    read=declare("sites.read", "entries are read and applied in memory, nothing is saved", "SPEC.md Order"),
    source_synced=declare(
        "sites.source-synced", "the entries would survive a power cut, nothing is saved", "SPEC.md Order"
    ),
    effect=declare(
        "sites.state", "state and applied are replaced at once, the cursor has not moved", "SPEC.md Order",
        steps=PUT_STEPS,
    ),
    saved=declare("sites.applied", "state and applied are saved, the cursor has not moved", "SPEC.md Order"),
    cursor=declare("sites.cursor", "the cursor is at the end of what was applied", "SPEC.md Order", steps=PUT_STEPS),
)  # fmt: skip

DONE = declare("sites.done", "everything is saved, the lock is still held", "SPEC.md Order")
