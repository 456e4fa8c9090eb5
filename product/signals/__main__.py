"""``python -m product.signals COMMAND``: see ``--help``."""

import sys

from product.signals.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
