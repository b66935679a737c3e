"""``python -m metaroll``: the command line without its script."""

import os
import sys

if sys.path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]  # ``python -m`` puts the current folder before all that is installed

from metaroll.lab.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
