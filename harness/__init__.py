"""Starts real processes, ends them at every point of a matrix, restarts recovery, and judges the disk. Knows no product."""

__version__ = "0.1.0"
