"""Generates ``docs/options.md``: concepts with their names in other libraries, and the options of each algorithm.

python tools/options_page.py --write   write the page from the configs
python tools/options_page.py --check   status 1 if it is out of date, 0 otherwise
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from metaroll import configs
from metaroll.concepts import CONCEPTS, Concept
from metaroll.config import MISSING, Config, Option, options_of
from metaroll.configs.evaluation import EvaluationConfig, MetaEvaluationConfig
from metaroll.configs.run import RunConfig
from metaroll.configs.table import evaluation_config, parts_of_algorithm, run_options
from metaroll.functional.search.base import Search
from metaroll.training.algorithms.registry import ALGORITHM_NAMES, purpose

__all__ = ["PAGE", "page_text"]

PAGE = Path(__file__).parents[1] / "docs" / "options.md"

_HEAD = """# Options

Written by `tools/options_page.py` from the configs. In Python an option is a keyword of `metaroll.agent(algo, env,
...)` or a field of a config, on the command line a flag (`--learning-rate`), in a YAML file a line (`learning_rate:
3e-4`). Its type, bounds, default and text are written once, in the config named above each table; presets, sizes and
environments set other defaults (`metaroll train ALGO ENV --help` shows them). None is `None` in Python, `null` in
YAML. Editors show options as keywords of `metaroll.agent` and of the classes in `metaroll.configs`.

The options of a run are those of its algorithm below, those of [every run](#every-run), and those of its evaluations,
[without](#evaluation) or [with](#evaluation-with-adaptation) adaptation. If an option is in several tables, that of the
algorithm applies.

## One name for one concept

Names of other libraries are accepted if they mean the same: `metaroll.agent("sac", env, buffer_size=100_000,
gamma=0.98)` works, as does `--gamma 0.98`. If they mean something else, the error names the option to use instead.
Former names of metaroll give a `DeprecationWarning`, and will be errors in version 0.4.

"""


_OTHERS = {
    "Workers": configs.WorkersConfig,
    "Engine": configs.EngineConfig,
    "Sampler": configs.SamplerConfig,
    "Parameter exploration": configs.ExplorationConfig,
    "Features of rollouts": configs.FeaturesConfig,
    "Simulations for inference": configs.SimulationConfig,
    "Estimator of a posterior": configs.EstimatorConfig,
    "metaroll infer": configs.InferenceOptions,
    "metaroll sim2real": configs.LoopOptions,
}
"""Sections of configs that do not belong to a run."""
_SHARED = {
    "Every run": RunConfig,
    "Evaluation": EvaluationConfig,
    "Evaluation with adaptation": MetaEvaluationConfig,
}


def page_text() -> str:
    """The text of the page."""
    rows = [_concept_row(concept) for concept in CONCEPTS if concept.fields and concept.taken]
    concepts = _table(("concept", "here", "documented names", "Stable-Baselines3", "garage", "sbi", "others"), rows)
    parts = [_HEAD, concepts]
    for title, config in _SHARED.items():
        parts.append(f"\n## {title}\n\nConfig: {_name_of(config)}.\n\n{_options_table(options_of(config))}")
    for name in ALGORITHM_NAMES:
        shown = ", ".join(map(_name_of, parts_of_algorithm(name)))
        table = _options_table(option for option in run_options(name) if option.section == "algorithm")
        evaluation = next(title for title, config in _SHARED.items() if config is evaluation_config(name))
        link = f"[{evaluation}](#{evaluation.lower().replace(' ', '-')})"
        text = f"{name} {purpose(name)}. Configs: {shown}; further options: {link}."
        parts.append(f"\n## {name}\n\n{textwrap.fill(text, 120, break_on_hyphens=False)}\n\n{table}")
    for title, config in _OTHERS.items():
        parts.append(f"\n## {title}\n\nConfig: {_name_of(config)}.\n\n{_options_table(options_of(config))}")
    return "".join(parts)


def _name_of(config: type[Config]) -> str:
    """The full name of a config, and the public configs that it extends."""
    config = config.__base__ if issubclass(config, Search) else config  # the settings of a search
    public = [kind.__name__ for kind in config.__mro__ if kind.__name__ in configs.__all__]
    if config.__name__ not in public:
        return f"`{config.__module__}.{config.__name__}`"
    bases = " and ".join(f"`{name}`" for name in public[1:])
    return f"`metaroll.configs.{public[0]}`" + (f" (with the fields of {bases})" if bases else "")


def _concept_row(concept: Concept) -> list[str]:
    columns = (concept.fields, concept.documented, concept.sb3, concept.garage, concept.sbi, concept.others)
    return [concept.name, *(", ".join(f"`{name}`" for name in names) for names in columns)]


def _options_table(options: Iterable[Option]) -> str:
    options = list(options)
    rows = [[f"`{o.name}`", _values_of(o), _default_of(o), re.sub(r"\bnull\b", "none", o.help)] for o in options]
    head = ["option", "values", "default", "meaning"]
    if any(option.was for option in options):
        former = ["formerly", *(f"`{option.was}`" if option.was else "" for option in options)]
        head, *rows = ([*row, was] for row, was in zip([head, *rows], former, strict=True))
    return _table(head, rows)


def _values_of(option: Option) -> str:
    if option.choices:
        text = ", ".join(f"`{choice}`" for choice in option.choices)
    else:
        text = {bool: "yes or no", int: "integer", float: "number", str: "text"}.get(option.kind)
        text = text or f"`{option.kind.__name__}(...)`"
        text = (f"{text}s" if option.many else text) + _bounds_of(option)
    text = f"list of {text}" if option.many else text
    return f"{text}, or none" if option.optional else text


def _bounds_of(option: Option) -> str:
    low, high = option.bounds.low, option.bounds.high
    if low == -high:
        return ""
    if high == float("inf"):
        return f" above {low:g}" if option.bounds.above_low else f" of at least {low:g}"
    return f" in {'(' if option.bounds.above_low else '['}{low:.10g}, {high:.10g}]"


def _default_of(option: Option) -> str:
    if option.default is MISSING:
        return "set by the preset"
    if option.default is None or option.kind is bool:
        return {None: "none", True: "yes", False: "no"}[option.default]
    return f"`{list(option.default) if option.many else option.default}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or check that it is up to date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write the page")
    action.add_argument("--check", action="store_true", help="compare it with the configs")
    args = parser.parse_args(arguments)
    if args.write:
        PAGE.write_text(page_text(), "utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text("utf-8") == page_text():
        return 0
    print(f"{PAGE} is out of date: run python tools/options_page.py --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
