"""What happens at a point, one module a kind: how it is armed, how the process is led through it, what proves it."""

from harness.faults.base import Fault, Stage, find_fault

__all__ = ["Fault", "Stage", "find_fault"]
