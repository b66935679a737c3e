"""Presets are plain data that fit the documented constructors; their values are those of specs/meta.md 6.1."""

from __future__ import annotations

import pytest

from metaroll.cli.experiment.experiments import resolve, run_options
from metaroll.cli.experiment.presets import ALGORITHM_NAMES, get_preset, preset_names
from metaroll.cli.options import check_value
from metaroll.envs.lookup.registry import family_names, get_family
from metaroll.errors import UnknownNameError

PAIRS = [(algo, env) for algo in ALGORITHM_NAMES for env in preset_names(algo)]


@pytest.mark.parametrize(("algo", "env"), PAIRS)
def test_every_value_names_an_option_and_fits_it(algo, env):
    options = {option.name: option for option in run_options(algo)}
    for name, value in get_preset(algo, env).items():
        assert name in options
        assert check_value(options[name], value, "the preset") == value


def test_presets_of_pearl_are_for_families_and_those_of_the_publication_have_one():
    assert set(preset_names("pearl")) <= set(family_names())
    published = {"cheetah-vel", "cheetah-dir", "ant-dir", "ant-goal", "humanoid-dir", "hopper-rand-params"}
    assert published | {"walker-rand-params", "point-robot", "sparse-point-robot"} == set(preset_names("pearl"))


def test_a_family_without_a_preset_brings_its_sizes():
    algorithm = resolve("pearl", "qcp-su")["algorithm"]
    assert (algorithm["num_train_tasks"], algorithm["num_test_tasks"], algorithm["max_path_length"]) == (80, 20, 8000)


def test_without_a_preset_there_are_the_common_values_of_the_algorithm():
    assert get_preset("ppo", "CartPole-v1")["hidden_sizes"] == (64, 64)
    assert resolve("ppo", "CartPole-v1")["algorithm"]["max_path_length"] == 500


def test_an_unknown_algorithm_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match="did you mean 'pearl'"):
        get_preset("perl", "point-robot")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        # train, test, meta batch, init, prior, post, extra, grad steps, tasks, emb, T, discount, reward scale, kl
        ("cheetah-dir", (2, 2, 4, 2000, 1000, 0, 1000, 2000, 5, 256, 200, 0.99, 5, 0.1)),
        ("cheetah-vel", (100, 30, 16, 2000, 400, 0, 600, 2000, 5, 100, 200, 0.99, 5, 0.1)),
        ("ant-dir", (2, 2, 4, 2000, 400, 0, 600, 4000, 5, 256, 200, 0.99, 5, 0.1)),
        ("ant-goal", (150, 30, 10, 2000, 400, 0, 600, 4000, 5, 256, 200, 0.99, 5, 1.0)),
        ("humanoid-dir", (100, 30, 16, 2000, 400, 0, 600, 4000, 5, 256, 200, 0.99, 5, 0.1)),
        ("hopper-rand-params", (40, 10, 10, 2000, 400, 0, 600, 4000, 5, 100, 200, 0.99, 5, 0.1)),
        ("walker-rand-params", (40, 10, 10, 2000, 400, 0, 600, 4000, 5, 100, 200, 0.99, 5, 0.1)),
        ("point-robot", (80, 20, 16, 200, 200, 0, 200, 1000, 5, 64, 20, 0.99, 100, 0.1)),
        ("sparse-point-robot", (80, 20, 16, 200, 100, 900, 0, 1000, 10, 1024, 20, 0.9, 100, 1.0)),
    ],
)
def test_values_of_the_reference_configurations(env, expected):
    """specs/meta.md 6.1"""
    names = (
        "num_train_tasks",
        "num_test_tasks",
        "meta_batch_size",
        "num_initial_steps",
        "num_steps_prior",
        "num_steps_posterior",
        "num_extra_rl_steps_posterior",
        "num_steps_per_epoch",
        "num_tasks_sample",
        "embedding_batch_size",
        "max_path_length",
        "discount",
        "reward_scale",
        "kl_lambda",
    )
    config = resolve("pearl", env)
    algorithm, run, evaluation = config["algorithm"], config["run"], config["evaluation"]
    assert tuple(algorithm[name] for name in names) == expected
    assert (algorithm["latent_dim"], algorithm["encoder_hidden_sizes"]) == (5, (200, 200, 200))
    assert (algorithm["batch_size"], algorithm["soft_target_tau"], algorithm["update_post_train"]) == (256, 0.005, 1)
    assert {algorithm[f"{kind}_lr"] for kind in ("policy", "qf", "vf", "context")} == {3e-4}
    assert (run["hidden_sizes"], run["epochs"]) == ((300, 300, 300), 500)
    # Evaluation steps per task and repetition: 60 and 400, of robots 600, in episodes of T steps, the last one counts.
    steps = {"point-robot": 60, "sparse-point-robot": 400}.get(env, 600)
    episodes = evaluation["n_exploration_traj"] + evaluation["n_test_rollouts"]
    assert episodes * algorithm["max_path_length"] == steps
    prior = {"point-robot": 1, "sparse-point-robot": 5}.get(env, 2)
    assert (evaluation["posterior_sampling"], evaluation["num_prior_episodes"]) == (True, prior)
    repetitions = {"cheetah-dir": 4, "ant-dir": 4, "ant-goal": 1, "humanoid-dir": 1, "cheetah-vel": 1}.get(env, 2)
    assert evaluation["repetitions"] == repetitions
    assert algorithm["use_next_obs_in_context"] == env.endswith("-rand-params")


def test_sparse_rewards_are_in_the_context_and_in_the_score_only():
    config = resolve("pearl", "sparse-point-robot")
    assert config["algorithm"]["context_reward_key"] == "sparse_reward"
    assert config["evaluation"]["return_reward_key"] == "sparse_reward"
    assert resolve("pearl", "point-robot")["algorithm"]["context_reward_key"] is None


def test_horizons_are_those_of_the_families():
    for env in preset_names("pearl"):
        assert resolve("pearl", env)["algorithm"]["max_path_length"] == get_family(env).horizon
