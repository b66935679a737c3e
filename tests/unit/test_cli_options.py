"""Options are the fields of configs (form.md 1 A: no parameter is listed twice)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from metaroll.config import MISSING, Config, Option, Was, Whole, merge_layers, options_of
from metaroll.configs.table import run_options
from metaroll.errors import UnknownNameError, UsageError
from metaroll.lab.cli.options import options_class, parse, renamed_flags
from metaroll.training.algorithms.registry import ALGORITHM_NAMES


@dataclass(frozen=True, kw_only=True)
class LearnerConfig(Config):
    """Settings of a learner."""

    num_tasks: Annotated[Whole, "Number of tasks."]
    sizes: Annotated[
        tuple[int, ...],
        "Hidden layers, whose widths may differ.",
    ] = (3, 2)
    lr: Annotated[float, "Learning rate."] = 1.0
    key: Annotated[str | None, "Name of an info; null: none."] = None
    mode: Annotated[Literal["fast", "slow"], "How: fast or slow."] = "fast"
    low: Annotated[float, Was("floor"), "Lower bound."] = 0.0
    deterministic: Annotated[bool, "Act without noise."] = True


@pytest.fixture
def options() -> dict[str, Option]:
    return {option.name: option for option in options_of(LearnerConfig)}


def test_types_and_defaults_are_those_of_the_fields(options):
    assert list(options) == ["num_tasks", "sizes", "lr", "key", "mode", "low", "deterministic"]
    assert (options["num_tasks"].kind, options["num_tasks"].default) == (int, MISSING)
    assert (options["sizes"].kind, options["sizes"].many, options["sizes"].default) == (int, True, (3, 2))
    assert (options["lr"].kind, options["lr"].default) == (float, 1)
    assert (options["key"].kind, options["key"].optional) == (str, True)
    assert options["mode"].choices == ("fast", "slow")
    assert options["deterministic"].kind is bool


def test_help_is_the_line_of_the_field(options):
    assert options["sizes"].help == "Hidden layers, whose widths may differ."


def test_flags_have_dashes(options):
    assert options["num_tasks"].flag == "--num-tasks"


def test_flags_of_other_libraries_and_former_ones_are_those_of_their_options(options):
    sac = run_options("sac")
    typed = ["--buffer-size=9", "--learning_rate", "1e-3", "--no-randomize", "--unknown", "x", "--seed", "-1"]
    rates = [part for flag in ("--policy-lr", "--qf-lr", "--temperature-lr") for part in (flag, "1e-3")]
    flags, names = renamed_flags(typed, sac)
    assert flags == ["--replay-size=9", *rates, *typed[3:]]
    assert names["policy_lr"] == names["qf_lr"] == "--learning_rate"
    with pytest.warns(DeprecationWarning, match=r"floor=\.\.\. is called low=\.\.\. now"):
        assert renamed_flags(["--floor", "2"], list(options.values()))[0] == ["--low", "2"]
    for twice in (["--gamma", "1", "--discount", "1"], ["--qf-lr", "1", "--learning-rate", "1"]):
        with pytest.raises(UsageError, match=f"is given twice, by {twice[0]} and {twice[2]}: keep one"):
            renamed_flags(twice, sac)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("lr", "3e-4", 3e-4),  # YAML 1.1 reads 3e-4 as a text
        ("lr", 2, 2.0),
        ("sizes", [300, 300], (300, 300)),
        ("sizes", [], ()),
        ("key", None, None),
        ("key", "sparse_reward", "sparse_reward"),
        ("deterministic", False, False),
    ],
)
def test_values_that_fit_are_taken(options, name, value, expected):
    taken = options[name].checked(value, "the file")
    assert taken == expected
    assert type(taken) is type(expected)


@pytest.mark.parametrize(
    ("name", "value", "expectation"),
    [
        ("num_tasks", 2.5, "an integer of at least 1"),
        ("num_tasks", True, "an integer of at least 1"),
        ("num_tasks", None, "an integer of at least 1"),
        ("lr", "fast", "a number"),
        ("lr", False, "a number"),
        ("sizes", 300, r"a list with each entry an integer, as in \[300\]"),
        ("sizes", [1, "x"], "an integer"),
        ("deterministic", 1, "true or false"),
        ("key", 3, r"a text \(or null\)"),
        ("mode", "quick", "'fast' or 'slow'"),
    ],
)
def test_values_of_another_type_are_refused_with_name_place_and_expectation(options, name, value, expectation):
    with pytest.raises((TypeError, ValueError), match=f"{name} in my.yaml must be {expectation}, got"):
        options[name].checked(value, "my.yaml")


def test_numbers_that_nothing_is_counted_by_are_refused(options):
    huge = "1" + "0" * 400
    for option, value in ((Option("n", int), 2**63), (Option("x", float), int(huge))):
        message = rf"{option.name} in c\.yaml must be (at most|a finite).*, got \d+(\.\.\.\d+)?$"
        with pytest.raises(ValueError, match=message):
            option.checked(value, "c.yaml")
    assert Option("task_seed", int).checked(2**100, "c.yaml") == 2**100
    kind = options_class("Options", [options["num_tasks"]], {"num_tasks": 3})
    with pytest.raises(UsageError, match=r"^--num-tasks must be at most 9223372036854775807, got 10{5,20}\.\.\."):
        parse(kind, ["--num-tasks", huge], "metaroll x", "")
    with pytest.raises(UsageError, match=r"\(5001 digits\) is larger than any option"):
        parse(kind, [f"--num-tasks=1{'0' * 5000}"], "metaroll x", "")


def test_later_layers_override_earlier_ones_and_the_constructor(options):
    values = merge_layers(options.values(), [("preset", {"lr": 2.0, "num_tasks": 4}), ("file", {"lr": 3.0})])
    assert (values["lr"], values["num_tasks"], values["low"]) == (3.0, 4, 0.0)


def test_unknown_names_are_refused_with_the_nearest_ones(options):
    with pytest.raises(UnknownNameError, match=r"option \(in my.yaml\) 'num_task'; did you mean 'num_tasks'"):
        merge_layers(options.values(), [("my.yaml", {"num_task": 3})])


def test_the_parser_reads_every_kind_of_option(options):
    values = merge_layers(options.values(), [("preset", {"num_tasks": 5})])
    kind = options_class("Algorithm", options.values(), values)
    assert parse(kind, [], "prog", "about").num_tasks == 5
    typed = [
        "--num-tasks",
        "7",
        "--sizes",
        "1",
        "2",
        "3",
        "--lr",
        "1e-3",
        "--key",
        "sparse",
        "--mode",
        "slow",
        "--no-deterministic",
    ]
    parsed = parse(kind, typed, "prog", "about")
    assert (parsed.num_tasks, parsed.sizes, parsed.lr) == (7, (1, 2, 3), 1e-3)
    assert (parsed.key, parsed.mode, parsed.deterministic) == ("sparse", "slow", False)


def test_colors_of_the_parser_are_no_part_of_a_message(options, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    kind = options_class("Options", [options["num_tasks"]], {"num_tasks": 3})
    with pytest.raises(UsageError, match=r"^--num-tasks must be a whole number, got 'ten'; see metaroll x --help$"):
        parse(kind, ["--num-tasks", "ten"], "metaroll x", "")


@pytest.mark.parametrize("algo", ALGORITHM_NAMES)
def test_every_help_text_stands_by_itself(algo):
    assert [option.flag for option in run_options(algo) if "see above" in option.help.lower()] == []
