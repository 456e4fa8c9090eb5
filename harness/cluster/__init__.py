"""Cells on a Dask cluster (harness.md, "Bigger than one machine"); needs the extra ``killmatrix[dask]``.

Three processes have a part in it, and a module each:

- :mod:`harness.cluster.crew`, in the run: connects, sends batches of cells, counts each result once.
- :mod:`harness.cluster.pool`, in a Dask worker: hands cells to engines, and tells which cell an engine died of. A Dask
  worker outlives many versions of the code, so this module imports nothing else of ours and looks into nothing.
- :mod:`harness.cluster.seat`, a process of its own per engine: it has the code as it is on the disk now, holds it against
  the run's, and runs one cell after the other. It goes, with its sandboxes, when its Dask worker does.
"""
