"""``python -m product.collector COMMAND``: see ``--help``."""

import sys

from product.collector.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
