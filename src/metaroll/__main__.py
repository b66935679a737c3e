"""``python -m metaroll``: the command line without its script."""

import sys

from metaroll.cli.main import main

sys.exit(main())
