"""``python -m metaroll``: the command line without its script."""

import sys

from metaroll.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
