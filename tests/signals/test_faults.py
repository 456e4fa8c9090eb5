"""Any sequence of appends and of scans that fail anywhere: a scan that succeeds has counted everything exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from product.signals import points
from tests.signals.helpers import Bench, recount, signal_of

CONSUMER = points.CONSUMER
PLACES = [
    str(place)
    for point in (CONSUMER.read, CONSUMER.source_synced, CONSUMER.effect, CONSUMER.saved, CONSUMER.cursor, points.DONE)
    for place in (point, *point.steps)
]
pieces = st.lists(st.sampled_from([signal_of("K"), signal_of("L"), b"no signal\n", b'{"key":', b'"M"}\n']), max_size=6)
faults = st.one_of(
    st.none(), st.tuples(st.sampled_from(PLACES), st.integers(1, 3), st.sampled_from(["ENOSPC", "EIO", "EACCES"]))
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(pieces, faults, st.sampled_from(["30", "90", "9999"])), min_size=1, max_size=6))
def test_no_fault_loses_or_doubles_a_signal(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[tuple[list[bytes], tuple[str, int, str] | None, str]],
) -> None:
    bench = Bench(Path(tmp_path_factory.mktemp("signals")))
    for appended, fault, batch_bytes in rounds:
        bench.append(*appended)
        plan = f"{fault[0]}#{fault[1]}=error:{fault[2]}" if fault else ""
        ran = bench.scan("--batch-bytes", batch_bytes, plan=plan)
        assert ran.code in (None, "E_IO"), ran.answer
        assert fault is not None or ran.status == 0
        bench.require_exact()
    bench.scan().require_done()
    assert bench.counts() == recount(bench.file.read_bytes())[0]
