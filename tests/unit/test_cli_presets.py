"""Presets are plain data that fit the documented constructors; their values are those of specs/meta.md 6.1."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import metaroll
from metaroll.configs.table import run_options
from metaroll.envs.base.task_family import registered_families
from metaroll.envs.lookup.registry import family_names, get_family
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import UnknownNameError, UsageError
from metaroll.lab.cli.main import main
from metaroll.lab.display.sizes import size_text
from metaroll.training.algorithms.registry import ALGORITHM_NAMES, get_algorithm, preset, preset_names
from metaroll.training.session.experiments import resolve

PAIRS = [(algo, env) for algo in ALGORITHM_NAMES for env in preset_names(algo)]


@pytest.mark.parametrize(("algo", "env"), PAIRS)
def test_every_value_names_an_option_and_fits_it(algo, env):
    options = {option.name: option for option in run_options(algo)}
    for name, value in preset(algo, env).items():
        assert name in options
        assert options[name].checked(value, "the preset") == value


def test_presets_of_pearl_are_for_families_and_those_of_the_publication_have_one():
    assert set(preset_names("pearl")) <= {*family_names(), "metaworld:ML1-reach-v3"}
    published = {"cheetah-vel", "cheetah-dir", "ant-dir", "ant-goal", "humanoid-dir", "hopper-rand-params"}
    published |= {"walker-rand-params", "point-robot", "sparse-point-robot", "metaworld:ML1-reach-v3"}
    assert published == set(preset_names("pearl"))


def test_a_family_without_a_preset_brings_its_sizes():
    algorithm = resolve("pearl", "qcp-su")["algorithm"]
    assert (algorithm["num_train_tasks"], algorithm["num_test_tasks"], algorithm["max_steps"]) == (80, 20, 8000)


def test_without_a_preset_there_are_the_common_values_of_the_algorithm():
    assert preset("ppo", "CartPole-v1")["hidden_sizes"] == (64, 64)
    assert resolve("ppo", "CartPole-v1")["algorithm"]["max_steps"] == 500


def test_an_unknown_algorithm_is_refused_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match="did you mean 'pearl'"):
        get_algorithm("perl")


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
        "warmup_steps",
        "num_steps_prior",
        "num_steps_posterior",
        "num_extra_rl_steps_posterior",
        "gradient_steps",
        "tasks_per_epoch",
        "embedding_batch_size",
        "max_steps",
        "discount",
        "reward_scale",
        "kl_lambda",
    )
    config = resolve("pearl", env)
    algorithm, run, evaluation = config["algorithm"], config["run"], config["evaluation"]
    assert tuple(algorithm[name] for name in names) == expected
    assert (algorithm["latent_dim"], algorithm["encoder_hidden_sizes"]) == (5, (200, 200, 200))
    assert (algorithm["batch_size"], algorithm["tau"], algorithm["update_post_train"]) == (256, 0.005, 1)
    assert {algorithm[f"{kind}_lr"] for kind in ("policy", "qf", "vf", "context")} == {3e-4}
    assert (run["hidden_sizes"], run["epochs"]) == ((300, 300, 300), 500)
    # Evaluation steps per task and repetition: 60 and 400, of robots 600, in episodes of T steps, the last one counts.
    steps = {"point-robot": 60, "sparse-point-robot": 400}.get(env, 600)
    episodes = evaluation["num_adaptation_episodes"] + evaluation["num_episodes"]
    assert episodes * algorithm["max_steps"] == steps
    prior = {"point-robot": 1, "sparse-point-robot": 5}.get(env, 2)
    assert (evaluation["posterior_sampling"], evaluation["num_prior_episodes"]) == (True, prior)
    # Of two tasks, which are all there are, a verdict takes six; the reference has four.
    repetitions = {"cheetah-dir": 6, "ant-dir": 6, "ant-goal": 1, "humanoid-dir": 1, "cheetah-vel": 1}.get(env, 2)
    assert evaluation["repetitions"] == repetitions
    assert algorithm["use_next_obs_in_context"] == env.endswith("-rand-params")


def test_sparse_rewards_are_in_the_context_and_in_the_score_only():
    config = resolve("pearl", "sparse-point-robot")
    assert config["algorithm"]["context_reward_key"] == "sparse_reward"
    assert config["evaluation"]["return_reward_key"] == "sparse_reward"
    assert resolve("pearl", "point-robot")["algorithm"]["context_reward_key"] is None


OWN_FAMILIES = registered_families()
FAMILIES = [*OWN_FAMILIES, "metaworld:ML1-reach-v3", "metaworld:ML10", "metaworld:MT10"]


@pytest.mark.parametrize("env", FAMILIES)
def test_all_algorithms_on_one_name_solve_one_problem(env):
    """Presets and sizes change neither horizon nor held-out tasks, what may be seen in a test, or what counts there."""
    family = get_family(env)
    adapting = [name for name in ALGORITHM_NAMES if get_algorithm(name).adapts]
    assert set(adapting) >= {"pearl", "rl2", "maml", "promp", "dice"}
    for algo, size in itertools.product(ALGORITHM_NAMES, (None, "small", "medium")):
        try:
            config = resolve(algo, env, size=size)
        except (UsageError, ValueError):  # other spaces, or a simulator that others take as it is
            assert algo not in adapting
            continue
        algorithm, evaluation = config["algorithm"], config["evaluation"]
        assert algorithm["max_steps"] == family.horizon, (algo, size)
        assert evaluation["return_reward_key"] == family.scored_reward, (algo, size)
        if algo in adapting:
            assert algorithm["num_test_tasks"] == family.num_test_tasks, (algo, size)
            assert algorithm["context_reward_key"] == family.observed_reward, (algo, size)


def test_the_documentation_has_the_problems_of_all_families():
    text = (Path(__file__).parents[2] / "docs/evaluation.md").read_text("utf-8")
    rows = {cells[0].strip("`"): cells[1:] for line in text.splitlines() if (cells := _cells(line))}
    for name, family in OWN_FAMILIES.items():
        tasks = "yes" if family.all_tasks else "no"
        held_out = f"{family.num_test_tasks}{' (the training tasks)' if family.same_tasks else ''}"
        told = [str(family.horizon), family.observed_reward or "reward", family.scored_reward or "reward", held_out]
        assert rows[name] == [*(cell.replace("sparse_reward", "`sparse_reward`") for cell in told), tasks], name


def _cells(line):
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    return cells if line.startswith("| `") and len(cells) == 6 else []


def test_a_schedule_of_a_preset_follows_the_epochs_of_the_run():
    """With 300 epochs, the learning rate of the preset was exactly 0 in the last 200."""
    assert resolve("ppo", "Pendulum-v1")["algorithm"]["lr_decay_epochs"] == 100
    longer = resolve("ppo", "Pendulum-v1", [("the test", {"epochs": 300})])
    assert longer["algorithm"]["lr_decay_epochs"] == 300
    given = resolve("ppo", "Pendulum-v1", [("the test", {"epochs": 300, "lr_decay_epochs": 100})])
    assert given["algorithm"]["lr_decay_epochs"] == 100
    assert resolve("epopt", "pend", [("the test", {"epochs": 7})])["algorithm"]["lr_decay_epochs"] == 7


@pytest.mark.parametrize(("decay", "beyond"), [("1", True), ("2", False)])
def test_epochs_without_a_learning_rate_are_announced(decay, beyond, tmp_path, capfd):
    small = ["--epochs", "2", "--steps-per-epoch", "40", "--max-steps", "20", "--evaluate-every", "0"]
    small += ["--num-episodes", "1", "--lr-decay-epochs", decay, "--torch-threads", "1"]
    assert main(["train", "ppo", "Pendulum-v1", *small, "--out", str(tmp_path / "run")]) == 0
    assert ("the learning rate is 0 after epoch 1" in capfd.readouterr().out) is beyond


def test_only_descriptions_know_names_of_algorithms():
    """A new algorithm is one module and one line of the registry: nothing else branches on a name."""
    package = Path(metaroll.__file__).parent
    sources = [*(package / "lab").rglob("*.py"), *(package / "training").rglob("*.py")]
    known = re.compile("|".join(f"[\"']{re.escape(name)}[\"']" for name in ALGORITHM_NAMES))
    found = {path.name for path in sources if known.search(path.read_text()) and path.parent.name != "algorithms"}
    assert found == {"demo.py", "sim2real.py"}  # demos of PEARL and PPO


def test_descriptions_wait_for_no_heavy_package_and_parse_no_arguments():
    code = (
        "import sys, metaroll.training.algorithms.registry; "
        "print([m for m in ('torch', 'gymnasium', 'tyro', 'rich', 'metaroll.lab.cli') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_all_environments_of_ml1_and_mt1_have_the_preset_of_their_benchmark():
    """Values of garage's examples for Meta-World, whose episodes had 150 steps then (see presets.yaml)."""
    config = resolve("pearl", "metaworld:ML1-push-v3")
    names = ("latent_dim", "num_train_tasks", "num_test_tasks", "num_steps_prior", "tasks_per_epoch", "reward_scale")
    assert [config["algorithm"][name] for name in names] == [7, 50, 10, 1000, 15, 10.0]
    assert (config["run"]["size"], config["run"]["epochs"], config["evaluation"]["num_adaptation_episodes"]) == (
        "paper",
        1000,
        10,
    )
    assert "Yu et al. 2019" in size_text(config, EnvSource.of("metaworld:ML1-push-v3"))
    assert "Rakelly" in size_text(resolve("pearl", "cheetah-vel"), EnvSource.of("cheetah-vel"))
    small = resolve("pearl", "metaworld:ML1-push-v3", size="small")
    assert (small["run"]["epochs"], small["algorithm"]["num_steps_prior"]) == (20, 500)
    assert preset("ppo", "metaworld:MT1-door-open-v3") == preset("ppo", "metaworld:MT1-reach-v3")
    ppo = resolve("ppo", "metaworld:MT1-push-v3")
    assert (ppo["run"]["size"], ppo["run"]["epochs"], ppo["algorithm"]["steps_per_epoch"]) == (None, 500, 5000)
    assert "50 training tasks, 10 of which are also the test tasks" in size_text(
        ppo, EnvSource.of("metaworld:MT1-push-v3")
    )
    assert preset("pearl", "metaworld:ML10") == preset("pearl", "qcp-su")
