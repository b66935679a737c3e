"""Configs: what a field says is checked, named, kept and shown in one way."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaroll
from metaroll.config import (
    Added,
    Bounds,
    Config,
    Count,
    Option,
    Positive,
    Share,
    UnusedWhere,
    UsedWhere,
    Was,
    Whole,
    config_of,
    described,
    merge_layers,
    options_of,
    parts_of,
    unused,
)
from metaroll.configs.table import parts_of_algorithm
from metaroll.errors import UnknownNameError, in_shell, named_as, option_name, option_text
from metaroll.option_names import understood
from metaroll.training.algorithms.registry import ALGORITHM_NAMES


@dataclass(frozen=True, kw_only=True)
class WalkConfig(Config):
    """Settings of a walk."""

    num_walks: Annotated[Whole, "Walks of an epoch."] = 3
    discount: Annotated[Share, "Discount factor."] = 0.9
    step_std: Annotated[Positive, Was("step_size"), "Standard deviation of a step."] = 0.5
    first: Annotated[Count | None, "Place of the first step; null draws it."] = None
    sizes: Annotated[tuple[Whole, ...], "Lengths of the walks."] = (2, 3)
    drift: Annotated[float, Bounds(-1.0, 1.0), UnusedWhere("first", None), "What is added to a step."] = 0.0
    mirror: Annotated[bool, UsedWhere("num_walks", 2), "Walk on both sides."] = False
    replay_size: Annotated[Whole, "Steps that are kept."] = 10

    def check(self) -> None:
        super().check()
        if self.first is not None and self.first > self.num_walks:
            raise self.wrong("first", f"be at most {self.shown('num_walks')}")


@dataclass(frozen=True, kw_only=True)
class LongWalkConfig(WalkConfig):
    """The same, with another default and a field more."""

    num_walks = 30
    rest: Annotated[float, "Seconds between them."] = 1.0


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"num_walks": 0}, ValueError, r"^num_walks must be an integer of at least 1, got 0$"),
        (
            {"num_walks": 2.0},
            TypeError,
            r"^num_walks must be an integer of at least 1, got 2.0 of type float: write 2$",
        ),
        ({"num_walks": True}, TypeError, r"^num_walks must be an integer"),
        ({"num_walks": 10**400}, ValueError, r"^num_walks must be at most 9223372036854775807, got 10+\.\.\.0+$"),
        ({"discount": 1.5}, ValueError, r"^discount must lie in \[0, 1\], got 1.5$"),
        ({"discount": math.nan}, ValueError, r"^discount must lie in \[0, 1\], got nan$"),
        ({"discount": "0.5"}, TypeError, r"^discount must be a number, got '0.5' of type str$"),
        ({"step_std": 0.0}, ValueError, r"^step_std must lie in \(0, inf\), got 0.0$"),
        ({"drift": -2.0}, ValueError, r"^drift must lie in \[-1, 1\], got -2.0$"),
        ({"first": -1}, ValueError, r"^first must be an integer of at least 0, got -1$"),
        (
            {"sizes": 3},
            TypeError,
            r"^sizes must be a list with each entry an integer of at least 1, as in \[3\], got 3 of type int$",
        ),
        ({"sizes": "34"}, TypeError, r"^sizes must be a list"),
        ({"sizes": (1, 0)}, ValueError, r"^each entry of sizes must be an integer of at least 1, got 0, in \[1, 0\]$"),
        ({"sizes": [1, "2"]}, TypeError, r"^each entry of sizes must be an integer .* of type str: write 2, in "),
        ({"num_walks": "1e4"}, TypeError, r"got '1e4' of type str: write 10000$"),
        ({"mirror": 1}, TypeError, r"^mirror must be True or False, got 1 of type int$"),
        ({"first": 4}, ValueError, r"^first must be at most num_walks=3, got 4$"),
        ({"num_walk": 1}, UnknownNameError, r"^unknown option 'num_walk'; did you mean num_walks=\.\.\.\?$"),
        ({"a": 1, "b": 1}, UnknownNameError, r"^unknown options 'a': .*; 'b': "),
    ],
)
def test_values_that_make_no_sense_are_refused(values: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        WalkConfig(**values)
    with pytest.raises(error, match=message):
        config_of(WalkConfig, WalkConfig(), values)


ALL_CONFIGS = sorted(
    {
        *(getattr(metaroll.configs, name) for name in metaroll.configs.__all__),
        *(part for algo in ALGORITHM_NAMES for part in parts_of_algorithm(algo)),
    },
    key=lambda kind: kind.__name__,
)
"""What learners, searches, samplers, evaluators and runs are made from; docs/options.md pins types and bounds."""


def outside(option: Option) -> list[Any]:
    """Values that a field does not take: of another type, beyond its bounds, none of its choices, no number."""
    wrong: list[Any] = [object()]
    if option.choices:
        wrong.append("no choice" if option.kind is str else 12345)
    elif option.kind in (int, float):
        low, high = option.bounds.low, option.bounds.high
        wrong += [low - 1] if low > -math.inf else []
        wrong += [high + 1] if high < math.inf else []
        wrong += [low] if option.bounds.above_low else []
        wrong += [high] if option.bounds.below_high else []
        wrong += [math.nan, math.inf, "3"] if option.kind is float else [2.5, True, 10**400]
    elif option.kind is bool:
        wrong.append(1)
    return [[value] for value in wrong] + [3] if option.many else wrong


@pytest.mark.parametrize("kind", ALL_CONFIGS, ids=lambda kind: kind.__name__)
def test_every_field_of_every_config_refuses_what_lies_outside(kind: type[Config]) -> None:
    for option in options_of(kind):
        for value in outside(option):
            with pytest.raises((ValueError, TypeError), match=rf"^(each entry of )?{option.name} must "):
                kind(**{option.name: value})


def test_configs_take_keywords_only() -> None:
    with pytest.raises(TypeError, match="WalkConfig takes keywords only, got 3"):
        WalkConfig(3)  # type: ignore[misc]


@given(st.integers(1, 2**63 - 1), st.floats(0, 1), st.lists(st.integers(1, 9)))
def test_equal_values_make_equal_configs(count: int, share: float, sizes: list[int]) -> None:
    config = WalkConfig(num_walks=count, discount=share, sizes=sizes)  # type: ignore[arg-type]
    assert (type(config.discount), config.sizes) == (float, tuple(sizes))
    for other in (
        pickle.loads(pickle.dumps(config)),
        copy.deepcopy(config),
        replace(config),
        parts_of(WalkConfig, vars(config)),
    ):
        assert other == config and described(other) == described(config)


def test_arrays_and_numbers_of_numpy_are_plain_python() -> None:
    config = WalkConfig(sizes=np.array([64, 32]), num_walks=np.int64(4), discount=np.float64(0.5))  # type: ignore[arg-type]
    assert config == WalkConfig(sizes=(64, 32), num_walks=4, discount=0.5)
    assert described(config) == described(WalkConfig(sizes=(64, 32), num_walks=4, discount=0.5))
    values = {"hidden_sizes": np.array([64, 32]), "num_passes": np.int64(3), "learning_rate": np.float64(0.1)}
    agent = metaroll.agent("ppo", "CartPole-v1", **values)
    plain = metaroll.agent("ppo", "CartPole-v1", hidden_sizes=(64, 32), num_passes=3, learning_rate=0.1)
    assert repr(agent.config) == repr(plain.config)
    with pytest.raises(
        TypeError, match=r"each entry of hidden_sizes must be an integer .*, got 64\.0 .* write 64, in \[64\.0, 0\.5\]"
    ):
        metaroll.agent("ppo", "CartPole-v1", hidden_sizes=np.array([64, 0.5]))


def test_a_config_and_keywords_are_one_config() -> None:
    given_one = WalkConfig(num_walks=5)
    assert config_of(WalkConfig, None, {}) == WalkConfig()
    assert config_of(WalkConfig, given_one, {"discount": 1}) == WalkConfig(num_walks=5, discount=1.0)
    assert config_of(LongWalkConfig, LongWalkConfig(), {"rest": 2}) == LongWalkConfig(rest=2.0)
    with pytest.raises(TypeError, match="config must be of type WalkConfig, got dict: all else is given by keyword"):
        config_of(WalkConfig, {"discount": 1}, {})  # type: ignore[type-var]


def test_names_of_others_are_taken_and_errors_call_them_as_they_were_given() -> None:
    assert config_of(WalkConfig, None, {"gamma": 0.5, "buffer_size": 7}) == WalkConfig(discount=0.5, replay_size=7)
    with pytest.raises(ValueError, match=r"^gamma must lie in \[0, 1\], got 2$"):
        config_of(WalkConfig, None, {"gamma": 2})
    with pytest.raises(ValueError, match=r"^discount is given twice, by gamma and discount: keep one$"):
        config_of(WalkConfig, None, {"gamma": 0.5, "discount": 0.5})


def test_former_names_are_taken_with_a_warning_and_stay_in_fingerprints() -> None:
    with pytest.warns(DeprecationWarning, match="step_size is called step_std now"):
        config = config_of(WalkConfig, None, {"step_size": 2})
    assert config == WalkConfig(step_std=2.0)
    assert described(config) == (
        "discount=0.9, drift=0.0, first=None, mirror=False, num_walks=3, replay_size=10, sizes=(2, 3), step_size=2.0"
    )
    assert described(LongWalkConfig(), WalkConfig) == described(WalkConfig(num_walks=30))
    assert understood({"whatever": 1}, options_of(WalkConfig)) == ({"whatever": 1}, {})


def test_a_field_that_joined_later_leaves_fingerprints_as_they_were() -> None:
    @dataclass(frozen=True, kw_only=True)
    class NewWalkConfig(WalkConfig):
        dropout: Annotated[Share, Added(), "Share of the steps that are left out."] = 0.0

    assert described(NewWalkConfig()) == described(WalkConfig())
    assert "dropout=0.5" in described(NewWalkConfig(dropout=0.5))


def test_fields_say_where_they_change_nothing() -> None:
    options = options_of(WalkConfig)
    assert unused(options, vars(WalkConfig())) == {
        "drift": "it only counts with first=...; give that, too",
        "mirror": "num_walks is 3; leave that out, and it counts",
    }
    assert unused(options, vars(WalkConfig(num_walks=2, first=1))) == {}


def test_a_subclass_has_the_fields_of_its_bases_with_its_own_defaults() -> None:
    names = [option.name for option in options_of(LongWalkConfig)]
    assert names == [*(option.name for option in options_of(WalkConfig)), "rest"]
    assert LongWalkConfig() == LongWalkConfig(num_walks=30, rest=1.0)
    (first, *_), (longer, *_) = options_of(WalkConfig), options_of(LongWalkConfig)
    assert longer == replace(first, default=30)
    with pytest.raises(ValueError, match="num_walks"):
        LongWalkConfig(num_walks=0)


def test_a_field_without_a_text_or_of_another_type_is_the_author_s_mistake() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Silent(Config):
        count: Whole = 1

    @dataclass(frozen=True, kw_only=True)
    class Odd(Config):
        anything: Annotated[dict, "Whatever."] = None  # type: ignore[assignment,type-arg]

    with pytest.raises(TypeError, match=r"count of a config must have a line of text: Annotated\[int, 'What it is.'\]"):
        Silent()
    with pytest.raises(TypeError, match="anything of a config must be a number, a text, a flag, a tuple of these or a"):
        Odd()


class Walk:
    """A learner with keywords of its own."""

    def __init__(self, config: WalkConfig | None = None, *, partner: str = "", **options: Any) -> None:
        self.config = config_of(WalkConfig, config, options, type(self))


class LongWalk(Walk):
    """One that hands its keywords on."""

    def __init__(self, *, shoes: int = 2, **options: Any) -> None:
        super().__init__(**options)


def test_an_unknown_keyword_may_mean_one_of_the_constructor() -> None:
    for name, meant in (("partnr", "partner"), ("sheos", "shoes"), ("num_walk", "num_walks")):
        with pytest.raises(UnknownNameError, match=f"unknown option '{name}'; did you mean {meant}="):
            LongWalk(**{name: 1})
    assert LongWalk(partner="x", num_walks=4).config == WalkConfig(num_walks=4)


def test_an_error_of_a_field_speaks_to_whoever_reads_it() -> None:
    with pytest.raises(ValueError, match=r"^num_walks must be an integer of at least 1, got 0$"):
        WalkConfig(num_walks=0)
    with in_shell(), pytest.raises(ValueError, match=r"^--num-walks must be an integer of at least 1, got 0$"):
        WalkConfig(num_walks=0)
    with in_shell(), pytest.raises(ValueError, match=r"^--first must be at most --num-walks 3, got 4$"):
        WalkConfig(first=4)
    with (
        in_shell(),
        named_as({"first": "--start"}),
        pytest.raises(ValueError, match=r"^--start must be at most --num-w"),
    ):
        WalkConfig(first=4)
    with pytest.raises(ValueError, match=r"^num_walks in walks\.yaml must be an integer of at least 1, got 0$"):
        merge_layers(options_of(WalkConfig), [("walks.yaml", {"num_walks": 0})])


def test_a_replaced_part_of_a_config_is_called_as_it_is_now() -> None:
    first = config_of(WalkConfig, None, {"gamma": 0.9, "buffer_size": 7})
    assert first.names_given == {"discount": "gamma", "replay_size": "buffer_size"}
    with pytest.raises(ValueError, match=r"^discount must lie in \[0, 1\], got 2$"):
        config_of(WalkConfig, first, {"discount": 2})
    assert config_of(WalkConfig, first, {"discount": 0.5}).names_given == {"replay_size": "buffer_size"}


def test_replace_takes_names_of_fields_alone_and_says_so() -> None:
    config = metaroll.configs.SACConfig(gamma=0.5)  # type: ignore[call-arg]
    assert replace(config, discount=0.6).discount == 0.6
    with pytest.raises(ValueError, match=r"gamma .* dataclasses.replace .*: write discount=... there"):
        replace(config, gamma=0.6)  # type: ignore[call-arg]
    with pytest.raises(UnknownNameError, match="did you mean discount="):
        replace(config, discuont=0.6)  # type: ignore[call-arg]


def test_a_subclass_that_is_no_dataclass_and_sets_a_field_is_an_error() -> None:
    class Careless(WalkConfig):
        discount = 0.5

    class Forgotten(WalkConfig):
        bonus: Annotated[float, "What is added."] = 0.1

    class Same(WalkConfig):
        """Nothing else."""

        version: ClassVar[int] = 3

    with pytest.raises(TypeError, match=r"^Careless sets discount: decorate it, @dataclass\("):
        Careless()
    for values in ({}, {"bonus": 0.2}):
        with pytest.raises(TypeError, match=r"^Forgotten sets bonus: decorate it, @dataclass\("):
            Forgotten(**values)
    assert Same(num_walks=4).num_walks == 4


def test_inspect_shows_the_fields() -> None:
    shown = inspect.signature(WalkConfig).parameters
    assert list(shown) == [option.name for option in options_of(WalkConfig)]
    assert shown["num_walks"].default == 3


def test_names_that_were_given_hold_for_all_messages_inside_and_for_none_outside() -> None:
    with named_as({"num_walks": "walks"}):
        with named_as({"first": "start"}):
            assert (option_name("num_walks"), option_text("first", 2), option_name("sizes")) == (
                "walks",
                "start=2",
                "sizes",
            )
        assert option_name("first") == "first"
    assert option_name("num_walks") == "num_walks"
    with in_shell(), named_as({"num_walks": "--walks"}):
        assert (option_text("num_walks", 2), option_text("first", 2)) == ("--walks 2", "--first 2")


def test_modules_of_configs_need_no_torch() -> None:
    code = "import sys, metaroll.configs.table; sys.exit('torch' in sys.modules or 'gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
