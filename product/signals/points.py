"""Every kill point of the signal counter. The inner steps are those of the primitive that is given the point."""

from killpoints import declare
from product.durable.cursor import ConsumerPoints
from product.durable.files import MAKE_DIRECTORY_STEPS, PUT_NEW_STEPS, PUT_STEPS
from product.durable.kernel_lock import KernelLockPoints

DIRECTORY = declare(
    "signals.layout.directory", "the state directory is made", "SPEC.md Files", steps=MAKE_DIRECTORY_STEPS
)

LOCK = KernelLockPoints(
    lock_made=declare("signals.lock.made", "the stable lock file is made", "SPEC.md Files", steps=PUT_NEW_STEPS),
    locked=declare("signals.lock.locked", "the kernel lock is held, nothing is read yet", "SPEC.md Order"),
    released=declare("signals.lock.released", "the kernel lock is released", "SPEC.md Order"),
)

CONSUMER = ConsumerPoints(
    read=declare("signals.read", "lines are read and added up in memory, nothing is saved", "SPEC.md Order"),
    source_synced=declare(
        "signals.source-synced", "the lines would survive a power cut, nothing is saved", "SPEC.md Order"
    ),
    effect=declare(
        "signals.counts", "counts and applied are replaced at once, the cursor has not moved", "SPEC.md Order",
        steps=PUT_STEPS,
    ),
    saved=declare("signals.counted", "counts and applied are saved, the cursor has not moved", "SPEC.md Order"),
    cursor=declare("signals.cursor", "the cursor is at the end of what was counted", "SPEC.md Order", steps=PUT_STEPS),
)  # fmt: skip

DONE = declare("signals.done", "everything is saved, the lock is still held", "SPEC.md Order")
