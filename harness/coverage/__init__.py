"""``killmatrix run --coverage``: what the processes under test ran, those included that were killed.

:mod:`harness.coverage.sources` finds what is to be measured, :mod:`harness.coverage.gather` collects what each process
saved (:mod:`harness.spawn.measure`), :mod:`harness.coverage.gaps` says what no process ran. Nothing here is imported for
a run without ``--coverage``, and coverage.py, an extra of the package, only where there is something to measure.
"""
