"""What the operating system says about a process: whether it is there, and when it was made. Only reads.

The creation stamp is a number that the kernel keeps (start ticks, FILETIME, a start time in microseconds), never a
floating-point time that a library derived from a clock: two readings of one process are equal, bit for bit.

macOS and Windows ask psutil, which is imported only there: written from its documentation, never run on those systems.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import Enum

UNKNOWN = "-"
"""In a :class:`Stamp`: this machine does not say."""


class Presence(Enum):
    """The answer to one query about one pid."""

    ABSENT = "absent"
    ZOMBIE = "zombie"
    PRESENT = "present"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One answer of the system. ``start`` with PRESENT only, ``reason`` with FAILED only."""

    presence: Presence
    start: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where and when a process was made: machine, boot of that machine, pid namespace, and the system's own stamp.

    ``machine`` and ``boot`` are UNKNOWN where the system does not say (a container without machine id; Windows has no
    name for a boot, but its stamps never come twice).
    """

    system: str
    machine: str
    boot: str
    space: int
    start: int


def own_stamp() -> Stamp:
    """The stamp of this process, asked for now. Raises OSError where the system does not tell."""
    if sys.platform == "win32":
        return Stamp("windows", _windows_machine(), UNKNOWN, 0, _psutil_start(os.getpid(), 10_000_000))
    if sys.platform == "darwin":
        return Stamp("macos", _macos_machine(), _macos_boot(), 0, _psutil_start(os.getpid(), 1_000_000))
    _, start = _read_stat("self")
    boot = _read_text("/proc/sys/kernel/random/boot_id")
    return Stamp("linux", _linux_machine(), boot, os.stat("/proc/self/ns/pid").st_ino, start)


def observe_process(pid: int) -> Sighting:
    """Ask the system about ``pid``. Never raises for what the system answers: a refusal or a fault is FAILED."""
    if sys.platform == "win32":
        return _observe_with_psutil(pid, 10_000_000)
    if sys.platform == "darwin":
        return _observe_with_psutil(pid, 1_000_000)
    return _observe_in_proc(pid)


# ------------------------------------------------------------------------------------------------------- Linux


def _observe_in_proc(pid: int) -> Sighting:
    try:
        # A procfs of another pid namespace shows other processes under our numbers: nothing in it may be believed.
        if os.readlink("/proc/self") != str(os.getpid()):
            return Sighting(Presence.FAILED, reason="/proc belongs to another pid namespace")
        state, start = _read_stat(str(pid))
    except (FileNotFoundError, ProcessLookupError):
        return _confirm_absence(pid)
    except (OSError, ValueError) as error:
        return Sighting(Presence.FAILED, reason=f"/proc/{pid}/stat: {error}")
    # Z also where the main thread ended and others run on; such a process still has its locks, so nobody gets to ask
    if state in "ZXx":
        return Sighting(Presence.ZOMBIE)
    return Sighting(Presence.PRESENT, start)


def _confirm_absence(pid: int) -> Sighting:
    """A missing entry in /proc alone proves nothing: with hidepid, processes of other users are not shown."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return Sighting(Presence.ABSENT)
    except OSError as error:
        return Sighting(Presence.FAILED, reason=f"not in /proc, and signal 0 says: {error.strerror}")
    return Sighting(Presence.FAILED, reason="not in /proc, but it takes signals")


def _read_stat(name: str) -> tuple[str, int]:
    """State letter and start in clock ticks after boot, of ``/proc/NAME/stat`` (proc(5), fields 3 and 22)."""
    text = _read_text(f"/proc/{name}/stat")
    fields = text[text.rindex(")") + 1 :].split()  # the command's name may contain anything, ')' and spaces too
    return fields[0], int(fields[19])


def _linux_machine() -> str:
    """The machine id, or UNKNOWN: it may be missing or empty in a container, or ``uninitialized`` in a first boot."""
    try:
        text = _read_text("/etc/machine-id")
    except (OSError, ValueError):
        return UNKNOWN
    return text if len(text) == 32 and all(digit in "0123456789abcdef" for digit in text) else UNKNOWN


def _read_text(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096).decode("utf-8", "surrogateescape").strip()
    finally:
        os.close(descriptor)


# ------------------------------------------------------------------------------------------- macOS and Windows


def _psutil_start(pid: int, units_per_s: int) -> int:
    import psutil

    try:
        return round(psutil.Process(pid).create_time() * units_per_s)
    except psutil.Error as error:
        raise OSError(f"no creation time of process {pid}: {error}") from error


def _observe_with_psutil(pid: int, units_per_s: int) -> Sighting:
    import psutil

    try:
        process = psutil.Process(pid)
        start = round(process.create_time() * units_per_s)
        if process.status() == psutil.STATUS_ZOMBIE:
            return Sighting(Presence.ZOMBIE)
    except psutil.ZombieProcess:
        return Sighting(Presence.ZOMBIE)
    except psutil.NoSuchProcess:
        return Sighting(Presence.ABSENT)
    except (psutil.Error, OSError) as error:  # access denied is no proof of anything
        return Sighting(Presence.FAILED, reason=str(error))
    return Sighting(Presence.PRESENT, start)


def _windows_machine() -> str:
    if sys.platform == "win32":
        import winreg

        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SOFTWARE\Microsoft\Cryptography") as key:
                return str(winreg.QueryValueEx(key, "MachineGuid")[0]).lower()
        except OSError:
            pass
    return UNKNOWN


def _macos_machine() -> str:
    import ctypes

    buffer, wait = (ctypes.c_ubyte * 16)(), (ctypes.c_long * 2)(1, 0)
    try:
        failed = ctypes.CDLL(None).gethostuuid(buffer, wait)
    except AttributeError:
        return UNKNOWN
    return UNKNOWN if failed else bytes(buffer).hex()


def _macos_boot() -> str:
    """The UUID the kernel makes for each boot: unlike the boot time, it does not move with the clock."""
    import ctypes

    buffer, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    if ctypes.CDLL(None).sysctlbyname(b"kern.bootsessionuuid", buffer, ctypes.byref(size), None, 0) != 0:
        raise OSError("kern.bootsessionuuid cannot be read")
    return buffer.value.decode("ascii").lower()
