"""The kill points of move-completed and handoff. Of a kind with points.py: the inner steps are those of the primitive."""

from killpoints import declare
from product.durable.directories import MOVE_DIRECTORY_STEPS, REMOVE_DIRECTORY_STEPS
from product.durable.files import DURABLE_STEPS, MAKE_DIRECTORY_STEPS, MOVE_NEW_STEPS, PUT_NEW_STEPS, REMOVE_STEPS

ARCHIVE_DIRECTORY = declare(
    "collector.move.directory", "evidence/, its year or its month is made in the archive", "collector.md 6",
    steps=MAKE_DIRECTORY_STEPS,
)  # fmt: skip
RENAMED = declare(
    "collector.move.renamed", "M1: the evidence has left the state root for the archive, on one volume",
    "collector.md 6", steps=MOVE_NEW_STEPS,
)  # fmt: skip
COPIED = declare(
    "collector.move.copied", "M2: the evidence is in the archive and still in the state root", "collector.md 6",
    steps=PUT_NEW_STEPS,
)  # fmt: skip
DURABLE = declare(
    "collector.move.durable", "M3, M4: the evidence in the archive is exact and survives a power cut", "collector.md 6",
    steps=DURABLE_STEPS,
)  # fmt: skip
SOURCE_REMOVED = declare(
    "collector.move.source-removed", "M3: the copied evidence is removed from the state root", "collector.md 6",
    steps=REMOVE_STEPS,
)  # fmt: skip
RUN_SWEPT = declare(
    "collector.move.run-swept", "M4: a dead writer's temporary file is gone from the run's directory", "collector.md 6"
)
RUN_REMOVED = declare(
    "collector.move.run-removed", "M4: the run's empty directory is removed", "collector.md 6",
    steps=REMOVE_DIRECTORY_STEPS,
)  # fmt: skip

LEFTOVER_FILE = declare(
    "collector.handoff.leftover-file", "a file of a dead handoff's bundle is removed", "collector.md 6",
    steps=REMOVE_STEPS,
)  # fmt: skip
LEFTOVER_DIRECTORY = declare(
    "collector.handoff.leftover-directory", "an empty directory of a dead handoff's bundle is removed",
    "collector.md 6", steps=REMOVE_DIRECTORY_STEPS,
)  # fmt: skip
ASIDE = declare(
    "collector.handoff.aside", "the bundle's directory is made under its temporary name, nothing is in it",
    "collector.md 6", steps=MAKE_DIRECTORY_STEPS,
)  # fmt: skip
MARKED = declare(
    "collector.handoff.marked", "bundle.json is in it: from now on it is known to be ours", "collector.md 6",
    steps=PUT_NEW_STEPS,
)  # fmt: skip
BUNDLE_DIRECTORY = declare(
    "collector.handoff.directory", "a directory inside the bundle is made", "collector.md 6",
    steps=MAKE_DIRECTORY_STEPS,
)  # fmt: skip
BUNDLE_FILE = declare(
    "collector.handoff.file", "a segment or an evidence is copied into the bundle", "collector.md 6",
    steps=PUT_NEW_STEPS,
)  # fmt: skip
SUMS = declare("collector.handoff.sums", "SHA256SUMS is in the bundle", "collector.md 6", steps=PUT_NEW_STEPS)
VERIFIED = declare(
    "collector.handoff.verified", "everything in the bundle was read back, it still has its temporary name",
    "collector.md 6",
)  # fmt: skip
PUBLISHED = declare(
    "collector.handoff.published", "the bundle has its name, whole", "collector.md 6", steps=MOVE_DIRECTORY_STEPS
)
