"""Configs of engines, pools and samplers: given whole, by keyword, or with parts replaced."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from dataclasses import replace
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch

from metaroll.config import Config, options_of
from metaroll.configs import (
    EngineConfig,
    ExplorationConfig,
    FeaturesConfig,
    RunConfig,
    SamplerConfig,
    SimulationConfig,
    WorkersConfig,
)
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import ShapeError, UnknownNameError
from metaroll.policies.playback import IdlePolicy
from metaroll.rollouts.configs import PoolTimeouts
from metaroll.rollouts.engine.engine import RolloutEngine
from metaroll.rollouts.samplers.parallel import ParallelRolloutSampler
from metaroll.rollouts.samplers.parameter_exploration import ParameterExplorationSampler
from metaroll.rollouts.samplers.sbi import RealRolloutSamplerForSBI, RecRolloutSamplerForSBI, SimRolloutSamplerForSBI
from metaroll.rollouts.single.rollout import rollout
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.seeding import isolated_rng
from metaroll.training.run.runner import LocalRunner

ENV = "metaroll/Pendulum-v0"


class Features:
    """The first state of a rollout."""

    dim_output = 2
    requires_target_domain_data = False

    @staticmethod
    def pack(data: Any) -> Any:
        return data

    def __call__(self, data: torch.Tensor) -> torch.Tensor:
        return data.reshape(len(data), -1)[:, :2]


def idle() -> IdlePolicy:
    return IdlePolicy(EnvSource.of(ENV).spec)


def pool(config: Any = None, **options: Any) -> SamplerPool:
    return SamplerPool(1, config=config, **options)


def engine(config: Any = None, **options: Any) -> RolloutEngine:
    return RolloutEngine(ENV, idle(), config=config, **options)


def parallel(config: Any = None, **options: Any) -> ParallelRolloutSampler:
    return ParallelRolloutSampler(
        ENV, idle(), 1, min_rollouts=2, show_progress_bar=False, seed=3, config=config, **options
    )


def exploration(config: Any = None, **options: Any) -> ParameterExplorationSampler:
    with isolated_rng(0):
        policy = torch.nn.Linear(3, 1)
    return ParameterExplorationSampler(ENV, policy, 1, 1, 1, 3, config=config, **options)


def simulation(config: Any = None, **options: Any) -> SimRolloutSamplerForSBI:
    return SimRolloutSamplerForSBI(ENV, idle(), {0: "pole_mass"}, Features(), config=config, seed=3, **options)


def real(config: Any = None, **options: Any) -> RealRolloutSamplerForSBI:
    return RealRolloutSamplerForSBI(ENV, idle(), Features(), config=config, seed=3, **options)


MAKERS: dict[Any, tuple[type[Config], dict[str, Any], dict[str, Any]]] = {
    pool: (WorkersConfig, {"transport": "process"}, {"transport": "serial"}),
    engine: (EngineConfig, {"on_error": "drop", "slots_per_unit": 3}, {"slots_per_unit": 2}),
    parallel: (SamplerConfig, {"on_invalid": "drop", "max_steps": 5}, {"max_steps": 4}),
    exploration: (ExplorationConfig, {"common_noise": True, "max_steps": 5}, {"max_steps": 4}),
    simulation: (SimulationConfig, {"num_segments": 2, "pad_mode": "last"}, {"num_segments": 1}),
    real: (FeaturesConfig, {"num_segments": 2, "stop_on_done": False}, {"num_segments": 1}),
}


@pytest.mark.parametrize("make", list(MAKERS))
def test_a_config_keywords_and_replaced_parts_are_one_config(make: Any) -> None:
    kind, given, replaced = MAKERS[make]
    assert make(**given).config == make(kind(**given)).config == kind(**given)
    assert make(kind(**given), **replaced).config == kind(**{**given, **replaced})


@pytest.mark.parametrize("make", list(MAKERS))
def test_unknown_keywords_are_answered_and_wrong_values_name_the_argument(make: Any) -> None:
    kind = MAKERS[make][0]
    whole = {"num_segments": 1} if issubclass(kind, FeaturesConfig) else {}
    for name in {option.name for option in options_of(kind)} - {"num_workers", "address"}:
        with pytest.raises(UnknownNameError, match=f"unknown option '{name}z'; did you mean {name}="):
            make(**{**whole, f"{name}z": 1})
        with pytest.raises((TypeError, ValueError), match=name):
            make(**{**whole, name: -0.5})
    if issubclass(kind, EngineConfig):
        with pytest.raises(UnknownNameError, match="'simulation_batch_size'; did you mean slots_per_unit="):
            make(simulation_batch_size=3)
    wrong: Any = IdlePolicy(EnvSource.of(ENV).spec)
    with pytest.raises(TypeError, match=f"config must be of type {kind.__name__}, got IdlePolicy"):
        make(wrong, **whole)


def test_documented_parameters_replace_parts_of_a_config_unless_they_are_at_their_defaults(tmp_path: Any) -> None:
    given = SimulationConfig(num_segments=2, stop_on_done=False, use_rec_act=False)
    assert simulation(given).config == given
    positional = SimRolloutSamplerForSBI(ENV, idle(), {0: "pole_mass"}, Features(), 4, config=given)
    assert positional.config == replace(given, num_segments=4)
    with pytest.raises(ValueError, match="give either num_segments or len_segments, got num_segments=2 and len_seg"):
        simulation(given, len_segments=5)
    for kind in (SimRolloutSamplerForSBI, RealRolloutSamplerForSBI, RecRolloutSamplerForSBI):
        parameters = inspect.signature(kind).parameters
        shared = [option for option in options_of(SimulationConfig) if option.name in parameters]
        assert shared and all(parameters[option.name].default == option.default for option in shared)


def test_what_no_config_holds_stays_a_keyword() -> None:
    recorded = [rollout(ENV, idle(), max_steps=6, seed=1)]
    given: dict[str, Any] = {"num_segments": 1, "rollouts_real": recorded}
    noisy = simulation(**given, assumed_noise=np.array([0.1, 0.1]))
    assert not torch.equal(noisy(np.ones((1, 1))), simulation(**given)(np.ones((1, 1))))
    with pytest.raises(ShapeError, match="assumed_noise must be deviations of all entries"):
        simulation(**given, assumed_noise=np.ones((3, 2)))


def test_values_that_do_not_go_together_are_refused_by_the_config() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"transport": "serial", "num_workers": 2},
            r"num_workers must be 1 with .* got 2: or use transport=.process",
        ),
        ({"address": "host:1"}, r"address must be left out with transport=.auto., got 'host:1': or use transport=.ray"),
        ({"address": "host", "transport": "ray"}, "address must be 'HOST:PORT'"),
        ({"max_retries": -1}, "max_retries must be an integer of at least 0, got -1"),
    ]
    for values, message in cases:
        for kind in (WorkersConfig, EngineConfig, SamplerConfig, ExplorationConfig):
            with pytest.raises(ValueError, match=message):
                kind(**values)
    with pytest.raises(ValueError, match="num_threads must be 1 with"):
        SamplerPool(2, transport="serial")
    with pytest.raises(ValueError, match=r"ray_address must be left out with transport=.auto., got 'host:1'"):
        RunConfig(ray_address="host:1")
    with pytest.raises(ValueError, match="chained must be False"):
        SimulationConfig(num_segments=2, chained=True)


def test_a_shared_pool_has_workers_of_its_own() -> None:
    with SamplerPool(1) as shared:
        for make in (engine, parallel, exploration):
            with pytest.raises(ValueError, match="timeouts belong to the pool"):
                make(pool=shared, timeouts=PoolTimeouts())
            with pytest.raises(ValueError, match="address belongs to the pool"):
                make(pool=shared, transport="ray", address="host:1")
            with pytest.raises(ValueError, match="max_retries belongs to the pool"):
                make(pool=shared, max_retries=1)
        with pytest.raises(ValueError, match="timeouts belong to the pool"):
            simulation(num_segments=1, pool=shared, timeouts=PoolTimeouts())
        with pytest.raises(ValueError, match=r"num_workers must be that of the pool \(1\), got 2"):
            ParallelRolloutSampler(ENV, idle(), 2, min_rollouts=1, pool=shared)
        with engine(pool=shared) as one:
            assert one.pool is shared


def test_a_runner_takes_a_config_of_its_engine() -> None:
    given = EngineConfig(num_workers=2, on_error="drop")
    for runner, count in ((LocalRunner(engine=given), 2), (LocalRunner(None, 4, engine=given, num_workers=3), 4)):
        assert runner._engine == replace(given, num_workers=count)
    slow, slower = PoolTimeouts(step_s=90.0), PoolTimeouts(step_s=900.0)
    for runner in (LocalRunner(timeouts=slow), LocalRunner(engine=EngineConfig(timeouts=slower), timeouts=slow)):
        assert runner._engine == EngineConfig(timeouts=slow)
    with pytest.raises(TypeError, match="engine must be of type EngineConfig, got dict"):
        LocalRunner(engine={"on_error": "drop"})  # type: ignore[arg-type]
    with pytest.warns(DeprecationWarning, match=r"transport, engine_args of LocalRunner: write engine=") as warned:
        former = LocalRunner(transport="process", engine_args={"on_error": "drop"})  # type: ignore[call-arg]
    assert former._engine == EngineConfig(transport="process", on_error="drop")
    assert warned[0].filename == __file__


def test_workers_of_a_pool_are_called_threads() -> None:
    for keywords, message in (
        ({"num_threads": 0}, "num_threads must be an integer of at least 1"),
        ({"num_threads": 2, "num_workers": 3}, "num_threads is given twice"),
        ({"num_threads": 2, "config": WorkersConfig(num_workers=3)}, "num_threads must be that of config, 3"),
    ):
        with pytest.raises(ValueError, match=message):
            SamplerPool(**keywords)
    with pytest.raises(ValueError, match="num_threads is given twice"):
        SamplerPool(2, num_workers=3)
    with pytest.raises(TypeError, match="integer"):
        SamplerPool(1.5)  # type: ignore[arg-type]
    assert SamplerPool(np.int64(3)).num_workers == 3


def test_samplers_keep_their_config_in_a_pickle() -> None:
    limits = PoolTimeouts(step_s=90.0)
    given = SamplerConfig(max_steps=4, on_invalid="drop", on_error="drop", slots_per_unit=1, timeouts=limits)
    with parallel(given) as sampler, cloudpickle.loads(cloudpickle.dumps(sampler)) as copied:
        assert copied.config == given and pickle.loads(pickle.dumps(given)) == given
        assert [len(r) for r in copied.sample()] == [len(r) for r in sampler.sample()] == [4, 4]


def test_configs_of_rollouts_load_no_torch() -> None:
    program = "import sys, metaroll.rollouts.configs; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
