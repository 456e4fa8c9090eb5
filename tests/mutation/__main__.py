"""``python -m tests.mutation [PART ...]``: small changes to the code, each of which a test or a cell must notice.

A PART is a piece of a module's path: ``killpoints``, ``collector/states``; none means every module of targets.toml.
The changes are made in a copy of the repository, never in the repository. Exit status: 0 every change was noticed or
has its reason in survivors.toml, 1 one was not or a reason is stale, 64 usage.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutation.targets import REPOSITORY, parse_arguments

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "killmatrix-report")


def main() -> int:
    parse_arguments()
    with tempfile.TemporaryDirectory(prefix="killmatrix-mutation-") as temp:
        copy = Path(temp, "copy")
        shutil.copytree(REPOSITORY, copy, ignore=LEFT_OUT)
        # a process of its own: what it imports, and what it forks, comes from the copy
        command = [sys.executable, "-m", "tests.mutation.run", *sys.argv[1:]]
        try:
            return subprocess.run(command, cwd=copy, check=False).returncode
        except KeyboardInterrupt:
            return 130


if __name__ == "__main__":
    sys.exit(main())
