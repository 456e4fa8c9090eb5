"""``python -m harness`` is the same command as ``killmatrix``."""

from harness.cli import main

if __name__ == "__main__":
    main()
