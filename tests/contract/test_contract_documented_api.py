"""Documented names: present, with the documented parameters, and each with a test of its behaviour (design.md 7)."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def _load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("coverage_table", ROOT / "tools" / "coverage_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # NamedTuple looks its module up
    spec.loader.exec_module(module)
    return module


tool = _load_tool()
DOCUMENTED = tool.load_documented()
CLAIMED = [item for item in DOCUMENTED if item["name"] in tool.DONE.get(item["seed"], ())]

PEARL_TESTS = "tests/unit/test_learners_pearl.py"
WORKER_TESTS = "tests/unit/test_rollouts_workers.py"
BEHAVIOUR_TESTS = {
    "PEARL": f"{PEARL_TESTS}::test_documented_order_and_defaults",
    "PEARL.adapt_policy": f"{PEARL_TESTS}::test_adapt_policy_infers_the_posterior_of_all_steps",
    "PEARL.augment_env_spec": f"{PEARL_TESTS}::test_augment_env_spec_appends_the_latent",
    "PEARL.get_env_spec": f"{PEARL_TESTS}::test_get_env_spec_of_the_encoder",
    "PEARL.get_exploration_policy": (
        f"{PEARL_TESTS}::test_exploration_policies_are_independent_and_begin_with_the_prior"
    ),
    "PEARL.networks": f"{PEARL_TESTS}::test_policy_and_networks",
    "PEARL.policy": f"{PEARL_TESTS}::test_policy_and_networks",
    "PEARL.to": f"{PEARL_TESTS}::test_to_moves_networks_and_optimiser_state",
    "PEARL.train": f"{PEARL_TESTS}::test_train_logs_evaluates_and_returns_the_last_meta_test_return",
    "PEARLWorker": f"{WORKER_TESTS}::test_pearl_worker_rollout_shapes_and_context",
    "PEARLWorker.agent": f"{WORKER_TESTS}::test_pearl_worker_agent_and_env",
    "PEARLWorker.env": f"{WORKER_TESTS}::test_pearl_worker_agent_and_env",
    "PEARLWorker.rollout": f"{WORKER_TESTS}::test_pearl_worker_rollout_shapes_and_context",
    "PEARLWorker.start_rollout": f"{WORKER_TESTS}::test_pearl_worker_start_and_step",
    "PEARLWorker.step_rollout": f"{WORKER_TESTS}::test_pearl_worker_start_and_step",
}
"""Every documented member of the finished seeds -> the test of its behaviour, which names its section of the specs."""


def documented_members(items: list[dict[str, Any]]) -> set[str]:
    """``Class`` and ``Class.member`` of documented names."""
    return {
        name
        for item in items
        for name in (item["name"], *(f"{item['name']}.{member['name']}" for member in item.get("members", [])))
    }


def test_committed_table_is_current() -> None:
    assert tool.main(["--check"]) == 0, "docs/coverage.md is out of date: run python tools/coverage_table.py"


@pytest.mark.parametrize("item", CLAIMED, ids=lambda item: item["name"])
def test_claimed_name_has_every_documented_parameter_and_member(item: dict[str, Any]) -> None:
    value = tool.find(item)
    assert value is not tool.MISSING
    assert tool.lacking(item, value) == []


def test_whole_of_seed_003_is_claimed() -> None:
    assert {item["name"] for item in DOCUMENTED if item["seed"] == "003"} == {"PEARL", "PEARLWorker"}
    assert tool.DONE["003"] == {"PEARL", "PEARLWorker"}


@functools.cache
def functions_of(path: str) -> dict[str, str]:
    """Name -> docstring of the functions of a test module."""
    source = ROOT / path
    assert source.exists(), f"{path} does not exist"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return {n.name: ast.get_docstring(n) or "" for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_every_documented_member_has_a_behaviour_test() -> None:
    assert documented_members(CLAIMED) == set(BEHAVIOUR_TESTS)


@pytest.mark.parametrize("member", BEHAVIOUR_TESTS)
def test_behaviour_test_exists_and_names_its_spec(member: str) -> None:
    path, _, name = BEHAVIOUR_TESTS[member].partition("::")
    known = functions_of(path)
    assert name in known, f"{path} has no test {name}"
    assert "specs/" in known[name], f"the docstring of {name} must name the section of the specs that it checks"


@pytest.mark.parametrize("compat", sorted({compat for compat, _ in tool.SEEDS.values()}))
def test_compat_offers_or_announces_every_documented_name(compat: str) -> None:
    module = importlib.import_module(f"metaroll.compat.{compat}")
    documented = [item["name"] for item in DOCUMENTED if tool.SEEDS[item["seed"]][0] == compat]
    for name in {*documented, *dir(module)}:
        if name in dir(module):
            assert getattr(module, name) is not None
        else:
            with pytest.raises(AttributeError, match="planned, but not built yet"):
                getattr(module, name)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        module.nonsense  # noqa: B018
