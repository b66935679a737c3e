"""``docs/options.md``: the concepts and their names elsewhere, and the options of each algorithm.

python tools/options_page.py --write   write it from the configs
python tools/options_page.py --check   1 if it is out of date, 0 otherwise
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from metaroll.concepts import CONCEPTS, Concept
from metaroll.config import MISSING, Option
from metaroll.configs.table import CONFIGS, run_options
from metaroll.training.algorithms.registry import ALGORITHM_NAMES, purpose

__all__ = ["PAGE", "page_text"]

PAGE = Path(__file__).parents[1] / "docs" / "options.md"

_HEAD = """# Options

Written by `tools/options_page.py` from the configs. In Python an option is a keyword of `metaroll.agent(algo, env,
...)` or a field of a config, at the command line a flag (`--learning-rate`), in a YAML file a line (`learning_rate:
3e-4`). Its type, its bounds, its default and its text stand once, in the config that is named above each table; a
preset, a size and an environment set other defaults (`metaroll train ALGO ENV --help` shows them).

## One name for one concept

Names of other libraries are taken where they mean the same: `metaroll.agent("sac", env, buffer_size=100_000,
gamma=0.98)` works, as does `--gamma 0.98`. Where they mean something else, the answer says what stands for them.
Former names of ours give a `DeprecationWarning`, and will be errors in version 0.4.

"""


def page_text() -> str:
    """The whole page."""
    rows = [_concept_row(concept) for concept in CONCEPTS if concept.fields and concept.taken]
    concepts = _table(("concept", "here", "documented names", "Stable-Baselines3", "garage", "sbi", "others"), rows)
    shared = [option for option in run_options(ALGORITHM_NAMES[0]) if option.section == "run"]
    parts = [_HEAD, concepts, "\n## Every run\n\n", _options_table(shared)]
    for name in ALGORITHM_NAMES:
        configs = ", ".join(f"`{config.__module__}.{config.__name__}`" for config in CONFIGS[name])
        options = [option for option in run_options(name) if option.section != "run"]
        parts.append(f"\n## {name}\n\n{name} {purpose(name)}. Configs: {configs}.\n\n{_options_table(options)}")
    return "".join(parts)


def _concept_row(concept: Concept) -> list[str]:
    columns = (concept.fields, concept.documented, concept.sb3, concept.garage, concept.sbi, concept.others)
    return [concept.name, *(", ".join(f"`{name}`" for name in names) for names in columns)]


def _options_table(options: Iterable[Option]) -> str:
    rows = [[f"`{o.name}`", _type_of(o), _default_of(o), o.help, f"`{o.was}`" if o.was else ""] for o in options]
    return _table(("option", "values", "default", "what it is", "formerly"), rows)


def _type_of(option: Option) -> str:
    if option.choices:
        text = ", ".join(f"`{choice}`" for choice in option.choices)
    else:
        text = {bool: "yes or no", int: "integer", float: "number", str: "text"}[option.kind]
        text += _bounds_of(option)
    text = f"list of {text}" if option.many else text
    return f"{text}, or none" if option.optional else text


def _bounds_of(option: Option) -> str:
    low, high = option.bounds.low, option.bounds.high
    if low == -high:
        return ""
    text = f" above {low:g}" if option.bounds.above_low else f" of at least {low:g}"
    return text if high == float("inf") else f"{text}, at most {high:g}"


def _default_of(option: Option) -> str:
    if option.default is MISSING:
        return "of the preset"
    value = list(option.default) if isinstance(option.default, tuple) else option.default
    return "none" if value is None else f"`{value}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or say whether it is up to date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the page")
    action.add_argument("--check", action="store_true", help="compare it with the configs")
    given = parser.parse_args(arguments)
    if given.write:
        PAGE.write_text(page_text(), "utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text("utf-8") == page_text():
        return 0
    print(f"{PAGE} is out of date: run python tools/options_page.py --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
