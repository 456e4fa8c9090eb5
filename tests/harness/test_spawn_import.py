"""The harness imports everywhere, also where it cannot start anything but fresh processes."""

from __future__ import annotations

import subprocess
import sys


def test_everything_imports_where_there_is_no_posix() -> None:
    hide = """
import importlib, os, pkgutil, select, signal, socket, subprocess, sys, tempfile, threading
sys.modules["fcntl"] = sys.modules["resource"] = None
for module, names in ((os, "fork pidfd_open waitid memfd_create P_ALL WEXITED killpg getpgid setsid"),
                      (select, "poll POLLIN"), (signal, "SIGKILL pidfd_send_signal pthread_sigmask"),
                      (socket, "AF_UNIX SCM_RIGHTS CMSG_SPACE MSG_CMSG_CLOEXEC")):
    for name in names.split():
        delattr(module, name)
import harness.spawn
sys.platform = "win32"
for info in pkgutil.iter_modules(harness.spawn.__path__, "harness.spawn."):
    importlib.import_module(info.name)
assert not harness.spawn.fork_is_supported()
"""
    subprocess.run([sys.executable, "-c", hide], check=True)
