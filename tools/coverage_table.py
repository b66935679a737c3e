"""Writes docs/coverage.md: which documented names exist, where they are defined, and what is missing.

Usage: python tools/coverage_table.py [--check]     (--check writes nothing; exit status 1 if the file is out of date)

The documented names are those of the five seed documents (tests/contract/documented_api.json). A name exists if the
compat module of its seed offers it. It is `done` only if it is listed in DONE below *and* has every documented
parameter (name, order, default) and member. If it is not listed, it is `in part`, since signatures say nothing about
behavior. A contract test fails if a name in DONE lacks something, or if the committed table is out of date.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTED = ROOT / "tests" / "contract" / "documented_api.json"
TABLE = ROOT / "docs" / "coverage.md"

SEEDS = {
    "000": ("meta_policy_search", "ProMP: `meta_policy_search.samplers`"),
    "001": ("metarl", "metarl: `metarl.np.algos`"),
    "002": ("garage", "garage: task samplers"),
    "003": ("garage", "garage: PEARL"),
    "004": ("pyrado", "Pyrado: `sampling`"),
}

DONE = {
    "000": {
        "DiceSampleProcessor",
        "MetaIterativeEnvExecutor",
        "MetaParallelEnvExecutor",
        "MetaSampleProcessor",
        "MetaSampler",
        "SampleProcessor",
        "Sampler",
    },
    "001": {"CEM", "CMAES", "NOP", "OffPolicyRLAlgorithm"},
    "002": {
        "ConstructEnvsSampler",
        "EnvPoolSampler",
        "MW_TASKS_PER_ENV",
        "MetaWorldTaskSampler",
        "SetTaskSampler",
        "TaskSampler",
    },
    "003": {"PEARL", "PEARLWorker"},
    "004": {
        "AllStepsEmbedding",
        "BayesSimEmbedding",
        "CVaRSampler",
        "DeltaStepsEmbedding",
        "DictIndexProxy",
        "DynamicTimeWarpingEmbedding",
        "Embedding",
        "GlobalNamespace",
        "LastStepEmbedding",
        "ParallelRolloutSampler",
        "ParameterExplorationSampler",
        "ParameterSample",
        "ParameterSamplingResult",
        "RNNEmbedding",
        "RealRolloutSamplerForSBI",
        "RecRolloutSamplerForSBI",
        "RolloutSamplerForSBI",
        "SamplerBase",
        "SamplerPool",
        "SimRolloutSamplerForSBI",
        "Step",
        "StepSequence",
        "after_rollout_query",
        "bootstrap_ci",
        "cat_to_format",
        "check_act_equal",
        "check_domain_params",
        "discounted_reverse_cumsum",
        "discounted_value",
        "discounted_values",
        "eval_domain_params",
        "eval_domain_params_with_segmentwise_reset",
        "eval_nominal_domain",
        "eval_randomized_domain",
        "gae_returns",
        "gen_ordered_batch_idcs",
        "gen_ordered_batches",
        "gen_shuffled_batch_idcs",
        "new_tuple",
        "rollout",
        "sample_from_hyper_sphere_surface",
        "select_cvar",
        "sequence",
        "sequence_add_init",
        "sequence_const",
        "sequence_nlog2",
        "sequence_plus_one",
        "sequence_rec_double",
        "sequence_rec_sqrt",
        "sequence_sqrt",
        "shuffled_ordered_batches",
        "stack_to_format",
        "to_format",
    },
}
"""Names of each seed whose behavior is complete and tested, too."""

MISSING = object()


class Row(NamedTuple):
    """Status of one documented name."""

    seed: str
    name: str
    kind: str
    module: str
    state: str
    lacks: list[str]


def load_documented() -> list[dict[str, Any]]:
    """All documented names."""
    return json.loads(DOCUMENTED.read_text(encoding="utf-8"))


def find(item: dict[str, Any]) -> Any:
    """The object with a documented name, or MISSING."""
    compat = importlib.import_module(f"metaroll.compat.{SEEDS[item['seed']][0]}")
    if item["name"] not in dir(compat):
        return MISSING
    try:
        return getattr(compat, item["name"])
    except (AttributeError, ModuleNotFoundError):
        return MISSING


def lacking(item: dict[str, Any], value: Any) -> list[str]:
    """Differences of ``value`` from the documented ``item``: parameters, their order and defaults, members."""
    if item["kind"] == "constant":
        return [] if value == item["value"] else [f"value {item['value']!r}"]
    gaps = lacking_parameters(value, item["params"])
    for member in item.get("members", []):
        gaps += [f"{member['name']}{gap}" for gap in lacking_member(value, member)]
    return gaps


def lacking_member(owner: type, member: dict[str, Any]) -> list[str]:
    """Differences of a member of ``owner`` from the documented one."""
    static = inspect.getattr_static(owner, member["name"], MISSING)
    is_data = member["kind"] in ("attribute", "property", "either")
    if static is MISSING:
        return [] if is_data and _is_assigned(owner, member["name"]) else [""]
    is_callable = inspect.isfunction(static) or isinstance(static, staticmethod | classmethod)
    if is_data:
        return [" (is a method, documented as a property)"] if is_callable and member["kind"] != "either" else []
    if not is_callable:
        return [" (is not a method)"]
    if member["kind"] == "classmethod" and not isinstance(static, classmethod):
        return [" (is not a class method)"]
    return [f"({gap})" for gap in lacking_parameters(getattr(owner, member["name"]), member["params"])]


def lacking_parameters(function: Any, documented: Sequence[dict[str, Any]]) -> list[str]:
    """Differences of the signature of ``function`` from the documented parameters."""
    own = {name: p for name, p in inspect.signature(function).parameters.items() if name not in ("self", "cls")}
    explicit = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    gaps = []
    for wanted in documented:
        if wanted["var"]:
            continue
        parameter = own.get(wanted["name"])
        if parameter is None or parameter.kind not in explicit:
            gaps.append(wanted["name"])
        elif wanted["default"] is not None:
            gaps += _default_gap(parameter, wanted["default"])
    named = [w["name"] for w in documented if not w["kwonly"] and not w["var"]]
    positional = [name for name, p in own.items() if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    if not gaps and positional[: len(named)] != named:
        gaps.append(f"order {', '.join(named)}")
    return gaps


def _default_gap(parameter: inspect.Parameter, documented: str) -> list[str]:
    if parameter.default is inspect.Parameter.empty:
        return [f"{parameter.name}={documented}"]
    try:
        wanted = ast.literal_eval(documented)
    except (ValueError, SyntaxError):  # documented as a class or a mock: any default is accepted
        return []
    return [] if parameter.default == wanted else [f"{parameter.name}={documented}"]


def _is_assigned(owner: type, name: str) -> bool:
    """Whether a class in the hierarchy annotates ``name`` or assigns ``self.name``."""
    assigned = re.compile(rf"\bself\.{name}\b\s*(?::[^=\n]+)?=(?!=)")
    for base in owner.__mro__:
        if name in vars(base).get("__annotations__", {}):
            return True
        if base.__module__.startswith("metaroll") and assigned.search(inspect.getsource(base)):
            return True
    return False


def coverage() -> list[Row]:
    """Status of every documented name, in the order of the documents."""
    rows = []
    for item in load_documented():
        value = find(item)
        if value is MISSING:
            rows.append(Row(item["seed"], item["name"], item["kind"], "", "planned", []))
            continue
        lacks = lacking(item, value)
        state = "done" if item["name"] in DONE.get(item["seed"], ()) and not lacks else "in part"
        rows.append(Row(item["seed"], item["name"], item["kind"], getattr(value, "__module__", ""), state, lacks))
    return rows


def to_markdown(rows: Sequence[Row]) -> str:
    """The text of docs/coverage.md."""
    counts = {state: sum(row.state == state for row in rows) for state in ("done", "in part", "planned")}
    lines = [
        "# Documented names",
        "",
        "<!-- written by tools/coverage_table.py; do not edit -->",
        "",
        "Every class, function and constant of the five seed documents, with its module and state: `done` (all",
        "documented parameters and members, with tests of their behavior), `in part` (usable, but something is still",
        "missing), `planned`.",
        "",
        f"{len(rows)} names: " + ", ".join(f"{number} {state}" for state, number in counts.items()) + ".",
    ]
    for seed, (compat, title) in SEEDS.items():
        lines += ["", f"## {title} (seed {seed}, `metaroll.compat.{compat}`)", ""]
        lines += ["| name | kind | module | state | missing |", "|---|---|---|---|---|"]
        for row in (row for row in rows if row.seed == seed):
            home = f"`{row.module}`" if row.module else ""
            lacks = ", ".join(f"`{gap}`" for gap in row.lacks)
            lines.append(f"| `{row.name}` | {row.kind} | {home} | {row.state} | {lacks} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table, or check that it is current."""
    parser = argparse.ArgumentParser(description="Write docs/coverage.md.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file is out of date")
    check = parser.parse_args(arguments).check
    text = to_markdown(coverage())
    if TABLE.exists() and TABLE.read_text(encoding="utf-8") == text:
        return 0
    if check:
        sys.stderr.write(f"{TABLE.relative_to(ROOT)} is out of date: run python tools/coverage_table.py\n")
        return 1
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
