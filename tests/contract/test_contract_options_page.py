"""docs/options.md is up to date with the configs, and lists all of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from metaroll import configs
from metaroll.configs.table import run_options
from metaroll.training.algorithms.registry import ALGORITHM_NAMES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "options.md").read_text("utf-8")


def test_the_page_is_that_of_the_configs():
    command = [sys.executable, str(ROOT / "tools" / "options_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_every_public_config_and_every_option_is_on_it():
    assert [name for name in configs.__all__ if not re.search(rf"\b{name}`", PAGE)] == []
    sections = dict(re.findall(r"^## (.*)\n((?:(?!## ).*\n)+)", PAGE, re.MULTILINE))
    assert set(re.findall(r"\(#([\w-]+)\)", PAGE)) <= {title.lower().replace(" ", "-") for title in sections}
    for algo in ALGORITHM_NAMES:
        (evaluation,) = re.findall(r"\[(Evaluation[\w ]*)\]", " ".join(sections[algo].split()))
        tables = "".join(sections[title] for title in ("Every run", evaluation, algo))
        assert {option.name for option in run_options(algo)} <= set(re.findall(r"^\| `(\w+)` \|", tables, re.MULTILINE))
