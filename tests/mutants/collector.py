"""The collector's and the durable primitives' wrong programs. Each function patches the running child and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import killpoints.actions
from product.collector import commands, observe, perform
from product.durable import files, rename
from product.durable.identity import Holder, own_identity
from tests.mutants.catalogue import mutant


@mutant("kill is a no-op", cells=["collector.first-commit/collector.claim.HELD#1=kill"])
def kill_is_a_no_op() -> None:
    def survive(_number: int) -> None:
        return None

    killpoints.actions._end_self = survive  # type: ignore[assignment]


@mutant("os.replace where a no-overwrite rename is due", cells=["*lock.created/tmp-synced#1=tamper:foreign-lock"])
def rename_overwrites() -> None:
    def replace(source: Path, target: Path) -> None:
        os.replace(source, target)

    def believe(_directory: Path) -> None:
        return None

    rename.rename_new = replace
    commands.probe_renames = believe


@mutant("what was written is not read back", cells=["*=tamper:cut-latest", "*=tamper:changed-lock"])
def read_back_skipped() -> None:
    def trust(_path: Path, _data: bytes) -> None:
        return None

    files._read_back = trust


@mutant("every owner but this process is taken for dead", cells=["collector.live-owner/*", "collector.reused-pid/*"])
def owner_not_asked() -> None:
    def answer(pid: int, created_at: str) -> Holder:
        me = own_identity()
        return Holder.SELF if (pid, created_at) == (me.pid, me.created_at) else Holder.DEAD

    observe.classify_holder = answer


@mutant("a dead attempt's file is not listed when the claim is rebound", cells=["collector.attempt-died/*"])
def attempt_not_listed() -> None:
    rebind = perform.rebind

    def forget(desk: Any, pending: Any, _attempt_there: bool) -> None:
        rebind(desk, pending, False)

    perform.rebind = forget


@mutant("what an exchange brought out is deleted unseen", cells=["*=tamper:changed-base"])
def base_not_checked() -> None:
    def trust(*_anything: object) -> None:
        return None

    files._require_exchanged = trust
