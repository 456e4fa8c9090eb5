"""``python -m product.sites COMMAND``: see ``--help``."""

import sys

from product.sites.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
