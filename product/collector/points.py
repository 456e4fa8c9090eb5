"""Every kill point of the collector. The inner steps are those of the primitive that is given the point."""

from killpoints import declare
from product.durable.files import (
    EXCHANGE_STEPS,
    MAKE_DIRECTORY_STEPS,
    MOVE_NEW_STEPS,
    PUT_NEW_STEPS,
    PUT_STEPS,
    REMOVE_STEPS,
)
from product.durable.lock import StateLockPoints

STATE = StateLockPoints(
    locked=declare("collector.state.locked", "the kernel lock is held, nothing is written yet", "V003 2.2"),
    owner_quarantined=declare(
        "collector.state.owner-quarantined",
        "a dead owner's metadata is moved aside",
        "V003 2.2",
        steps=MOVE_NEW_STEPS,
    ),
    owner=declare("collector.state.owner", "our owner metadata is in place", "V003 2.2", steps=PUT_STEPS),
    owner_removed=declare(
        "collector.state.owner-removed", "our owner metadata is removed on leaving", "V003 2.2", steps=REMOVE_STEPS
    ),
    released=declare("collector.state.released", "the kernel lock is released", "V003 2.2"),
    lock_made=declare("collector.state.lock-made", "the stable lock file is made", "V003 2.2", steps=PUT_NEW_STEPS),
    quarantine_made=declare(
        "collector.state.quarantine-made",
        "the directory for dead owners' metadata is made",
        "V003 2.2",
        steps=MAKE_DIRECTORY_STEPS,
    ),
)

DIRECTORY = declare(
    "collector.layout.directory", "a directory of ours is made", "collector.md 1", steps=MAKE_DIRECTORY_STEPS
)
MARKER = declare("collector.layout.marker", "the quarantine directory is marked as ours", "V004 1", steps=PUT_NEW_STEPS)
SWEPT = declare("collector.layout.swept", "temporary files of a dead writer are removed", "collector.md 1")

BEGUN = declare("collector.pending.BEGUN", "a run is begun, no evidence yet", "collector.md 3", steps=PUT_STEPS)

RUN_DIRECTORY = declare(
    "collector.evidence.directory", "the run's directory is made", "collector.md 1", steps=MAKE_DIRECTORY_STEPS
)
EVIDENCE = declare(
    "collector.evidence.stored", "the exact evidence is kept, no pending yet", "collector.md 3", steps=PUT_NEW_STEPS
)

INDEXED = declare("collector.index.written", "the derived index has caught up with the cards", "collector.md 1")

BEFORE_PLANNED = declare("collector.claim.before-PLANNED", "evidence is stored, pending is not written", "V003 2.1")
PLANNED = declare(
    "collector.claim.PLANNED", "pending PREPARED knows the exact lock that does not exist yet", "V003 2.1",
    steps=PUT_STEPS,
)  # fmt: skip
LOCK_CREATED = declare(
    "collector.lock.created", "the formal lock exists whole, pending still says PLANNED", "V003 2.1",
    steps=PUT_NEW_STEPS,
)  # fmt: skip
HELD = declare("collector.claim.HELD", "pending says the lock is held", "V003 2.1", steps=PUT_STEPS)

CANDIDATE_CARDS = declare(
    "collector.candidate.cards", "the cards candidate is written, not frozen", "collector.md 3", steps=PUT_STEPS
)
CANDIDATE_RUNS = declare(
    "collector.candidate.runs", "the runs candidate is written, not frozen", "collector.md 3", steps=PUT_STEPS
)
INTENT = declare(
    "collector.transaction.TRANSACTION_INTENT", "every byte of the transaction is frozen", "V003 2.2",
    steps=PUT_STEPS,
)  # fmt: skip
CARDS_NEW = declare(
    "collector.transaction.cards-new", "cards begin a new segment, runs are still base", "collector.md 3",
    steps=MOVE_NEW_STEPS,
)  # fmt: skip
CARDS = declare(
    "collector.transaction.cards", "cards are exchanged, runs are still base", "collector.md 3", steps=EXCHANGE_STEPS
)
RUNS_NEW = declare(
    "collector.transaction.runs-new", "runs begin a new segment, both are candidates", "collector.md 3",
    steps=MOVE_NEW_STEPS,
)  # fmt: skip
RUNS = declare(
    "collector.transaction.runs", "runs are exchanged, both are candidates", "collector.md 3", steps=EXCHANGE_STEPS
)
DISPLACED = declare(
    "collector.transaction.displaced", "the base that a dead exchange left beside is removed", "collector.md 4 X0",
    steps=REMOVE_STEPS,
)  # fmt: skip
COMMITTED = declare(
    "collector.transaction.BUSINESS_COMMITTED", "both manifests are in place and pending says so", "V003 2.2",
    steps=PUT_STEPS,
)  # fmt: skip

SLOT = declare("collector.terminal.slot", "the hour's slot is written", "collector.md 6", steps=PUT_STEPS)
LATEST = declare("collector.terminal.latest", "latest points at the slot", "collector.md 6", steps=PUT_STEPS)
TERMINAL = declare(
    "collector.transaction.TERMINAL", "the terminal record is durable, items are only to be cleaned", "V003 2.3",
    steps=PUT_STEPS,
)  # fmt: skip

ITEM_REMOVED = declare(
    "collector.cleanup.item", "a quarantined lock is deleted after its term", "V003 2.3 step 4", steps=REMOVE_STEPS
)
LEFTOVERS = declare(
    "collector.cleanup.leftovers", "what could not be deleted is written down", "collector.md 4", steps=PUT_STEPS
)
LEFTOVERS_REMOVED = declare(
    "collector.cleanup.leftovers-removed", "nothing is left over any more", "collector.md 4", steps=REMOVE_STEPS
)
RELEASING = declare(
    "collector.release.RELEASING", "everything is cleaned, the lock is still ours", "collector.md 4 X7",
    steps=PUT_STEPS,
)  # fmt: skip
LOCK_REMOVED = declare(
    "collector.release.lock", "our own lock is removed, pending is still there", "collector.md 4 X7",
    steps=REMOVE_STEPS,
)  # fmt: skip
PENDING_REMOVED = declare(
    "collector.release.pending", "pending is removed: nothing is in flight", "collector.md 4 C7", steps=REMOVE_STEPS
)

TAKEOVER_PLANNED = declare(
    "collector.takeover.TAKEOVER_PLANNED", "the takeover is planned, whoever recovers", "V004 2.1", steps=PUT_STEPS
)
RENAME = declare(
    "collector.takeover.rename", "old lock moved to quarantine, pending not yet advanced", "V003 2.3 step 2; V004 1",
    steps=MOVE_NEW_STEPS,
)  # fmt: skip
OLD_LOCK_QUARANTINED = declare(
    "collector.takeover.OLD_LOCK_QUARANTINED", "pending lists the old lock", "V004 2.2", steps=PUT_STEPS
)
CREATE_PLANNED = declare(
    "collector.takeover.CREATE_PLANNED", "this process's new claim is planned, no lock yet", "V004 2.3",
    steps=PUT_STEPS,
)  # fmt: skip
NEW_LOCK = declare(
    "collector.takeover.new-lock", "the new lock exists whole, pending still says CREATE_PLANNED", "V004 2.3",
    steps=PUT_NEW_STEPS,
)  # fmt: skip
NEW_LOCK_HELD = declare("collector.takeover.NEW_LOCK_HELD", "the new lock is held", "V004 2.3", steps=PUT_STEPS)
ATTEMPT_RENAME = declare(
    "collector.takeover.attempt-rename", "a dead attempt's lock is moved aside, not yet listed", "V004 2.5",
    steps=MOVE_NEW_STEPS,
)  # fmt: skip
REBOUND = declare(
    "collector.takeover.rebound", "the claim is bound to this process, attempt + 1", "V004 2.4", steps=PUT_STEPS
)
FOLDED = declare(
    "collector.takeover.folded", "a takeover that came after the terminal record is folded", "collector.md 4 X6",
    steps=PUT_STEPS,
)  # fmt: skip
