"""What new users type wrongly: each message names what came, what is expected, and what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

import gymnasium
import pytest
import yaml
from test_cli_sessions import TINY

from metaroll.lab.cli.main import main

MY_ENV = """
import gymnasium, numpy as np
from metaroll import TaskFamily

class Cart(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    mass = 1.0
    broken = ""
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = np.zeros(2, np.float32)
        return (self.x if self.broken != "old" else (self.x,))[:] if self.broken != "old" else self.x, {}
    def step(self, action):
        if self.broken == "raises":
            raise KeyError("goal")
        if self.broken == "shape":
            return np.zeros(3, np.float32), 0.0, False, False, {}
        if self.broken == "old":
            return self.x, 0.0, False, {}
        if self.broken == "nan":
            return self.x * np.nan, 0.0, False, False, {}
        return self.x, -abs(float(self.x[0]) - 1.0), False, False, {}

class Raises(Cart):
    broken = "raises"

class OldInterface(Cart):
    broken = "old"

class OtherShape(Cart):
    broken = "shape"

class NotANumber(Cart):
    broken = "nan"

family = TaskFamily.from_params(Cart, {"mass": (0.5, 2.0)}, horizon=5, num_train_tasks=4, num_test_tasks=3)
raising = TaskFamily.from_params(Raises, {"mass": (0.5, 2.0)}, horizon=5, num_train_tasks=4, num_test_tasks=3)
old = TaskFamily.from_params(OldInterface, {"mass": (0.5, 2.0)}, horizon=5, num_train_tasks=4, num_test_tasks=3)
shape = TaskFamily.from_params(OtherShape, {"mass": (0.5, 2.0)}, horizon=5, num_train_tasks=4, num_test_tasks=3)
nan = TaskFamily.from_params(NotANumber, {"mass": (0.5, 2.0)}, horizon=5, num_train_tasks=4, num_test_tasks=3)

def wrong_constant():
    return TaskFamily.from_params(Cart, {"mas": (0.5, 2.0)}, horizon=5)
"""
PPO = [
    "--epochs",
    "1",
    "--steps-per-epoch",
    "40",
    "--max-steps",
    "10",
    "--num-episodes",
    "1",
    "--torch-threads",
    "1",
]


class Mistake(NamedTuple):
    """What is typed, and what the message must say: what came, what is expected, and what to do."""

    typed: str
    came: str
    expected: str
    hint: str


ROWS = [
    # -- those whose message failed in the review of 2026-11-22 --------------------------------------------------------
    Mistake("train ppo HalfCheetah-v5", "HalfCheetah-v5", "a package that it needs is missing", "pip install"),
    Mistake("train ppo LunarLander-v3", "LunarLander-v3", "a package that it needs is missing", "gymnasium[box2d]"),
    Mistake("train pearl Pendulum-v1", "Pendulum-v1", "without tasks", "TaskFamily.from_params('Pendulum-v1'"),
    Mistake("train pearl Pendulum-v1", "Pendulum-v1", "adapt to tasks", "--randomize-param"),
    Mistake("train ppo ALE/Pong-v5", "ALE/Pong-v5", "ale-py registers it", "pip install ale-py"),
    Mistake("train point-robot pearl", "point-robot", "the algorithm comes first", "metaroll train pearl point-robot"),
    Mistake("train trpo Pendulum-v1", "trpo", "Known: pearl,", "ppo may be what you want"),
    Mistake("train crossq Pendulum-v1", "sac may be", "examples/plugins", "metaroll train crossq:CROSSQ ENV"),
    Mistake(
        "train pearl CartPole-v1", "CartPole-v1", "without tasks", "or train ppo, sac (actions are numbers) or dqn"
    ),
    Mistake("train ppo Pendulum-v1 --learning-rates 0.1", "--learning-rates", "--learning-rate", "did you mean"),
    Mistake(
        "train pearl point-robot --learning-rates 0.1", "--learning-rates", "--policy-lr or --qf-lr", "did you mean"
    ),
    Mistake(
        "train ppo Pendulum-v1 --total-timesteps 100", "--total-timesteps", "fixed number of environment", "--epochs"
    ),
    Mistake("train ppo Pendulum-v1 --set epochs=3", "--set", "a flag of its own", "--epochs 3"),
    Mistake("train ppo Pendulum-v1 --hidden-sizes 64,64", "'64,64'", "spaces between them", "--hidden-sizes 64 64"),
    Mistake(
        "train ppo Pendulum-v1 --normalize-observations False",
        "'False'",
        "takes no value",
        "--no-normalize-observations",
    ),
    Mistake("evaluate runs/ppo --trust=yes", "'yes'", "--trust takes no value", "write --trust alone"),
    Mistake("train ppo Pendulum-v1 --keep-best=", "got ''", "--keep-best must be the name", "a number in the log"),
    Mistake("train cmaes CartPole-v1 --lower 1.5", "[1.5, inf]", "--lower and --upper", "the mean between them"),
    Mistake("train maml point-navigation --adapt x", "'x'", "--adapt must hold", "policy.log_std"),
    Mistake("train ppo Pendulum-v1 --n-envs 4", "--n-envs", "--num-workers", "did you mean"),
    Mistake("train pearl my_env.py", "my_env.py", "one name is meant", "my_env:family (a family of tasks)"),
    Mistake("train pearl my_env", "'my_env'", "one name is meant", "my_env:family (a family of tasks)"),
    Mistake("train ppo my_env.py", "my_env.py", "one name is meant", "my_env:Cart (an environment)"),
    Mistake("train pearl point-robot --batch-size 100000000", "--batch-size 100000000", "GiB", "take --batch-size"),
    Mistake("compare runs/pearl runs/ppo", "'point-robot' in runs/pearl", "not comparable", "leave some out"),
    Mistake(
        "train pearl my_env:raising --config tiny.yaml", "KeyError", "my_env.py, line 16, in step", "raise KeyError"
    ),
    Mistake("evaluate runs/ppo --num-tasks 3", "--num-tasks", "held-out tasks", "--episodes N"),
    # -- those that were answered well ---------------------------------------------------------------------------------
    Mistake("trian", "'trian'", "Known:", "did you mean 'train'"),
    Mistake("train perl point-robot", "'perl'", "Known:", "did you mean 'pearl'"),
    Mistake("train pearl", "the environment is missing", "metaroll train ALGO ENV", "Presets: ant-dir"),
    Mistake("train ppo", "the environment is missing", "Presets: HalfCheetah-v5", "any Gymnasium id"),
    Mistake("train es", "the environment is missing", "For example: qcp-st", "module:attribute"),
    Mistake("train pearl point-robto", "'point-robto'", "Known:", "did you mean 'point-robot'"),
    Mistake("train ppo Pendulm-v1", "'Pendulm-v1'", "any id of Gymnasium", "Pendulum-v1"),
    Mistake("train ppo Pendulum-v2", "'Pendulum-v2'", "any id of Gymnasium", "Pendulum-v1"),
    Mistake("train ppo Pendulum-v1 --epoch 3", "--epoch", "did you mean", "--epochs"),
    Mistake("train ppo Pendulum-v1 --epochs ten", "'ten'", "a whole number", "--help"),
    Mistake("train ppo Pendulum-v1 --epochs 0", "got 0", "at least 1", "epochs"),
    Mistake("train sac Pendulum-v1 --learning-starts abc", "'abc'", "a whole number", "--learning-starts must be"),
    Mistake("train sac Pendulum-v1 --gamma 1.5", "1.5", "[0, 1]", "--gamma must lie"),
    Mistake("train cem Pendulum-v1 --n-samples 3", "got 0.1", "--n-samples 3", "--best-frac must leave"),
    Mistake("train ppo Pendulum-v1 --learning-rate -1", "-1", "(0, inf)", "--learning-rate"),
    Mistake("train ppo Pendulum-v1 --discount 1.5", "1.5", "[0, 1]", "discount"),
    Mistake("train ppo Pendulum-v1 --hidden-sizes 0", "[0]", "an integer of at least 1", "--hidden-sizes"),
    Mistake("train ppo Pendulum-v1 --num-workers 0", "got 0", "at least 1", "--num-workers"),
    Mistake("train ppo Pendulum-v1 --num-workers 100", "got 100", "at most", "processors"),
    Mistake("train ppo Pendulum-v1 --device cuda", "--device cuda", "cannot be used here", "--device cpu"),
    Mistake("train ppo Pendulum-v1 --device gpu", "--device gpu", "cannot be used here", "--device cpu"),
    Mistake("train pearl point-robot --out runs/pearl", "runs/pearl", "exists", "metaroll resume runs/pearl"),
    Mistake(
        "train pearl point-robot --config wrong_type.yaml", "'many'", "an integer", "batch_size in wrong_type.yaml"
    ),
    Mistake("train pearl point-robot --config unknown.yaml", "'batch_sise'", "did you mean", "'batch_size'"),
    Mistake("train pearl point-robot --config text.yaml", "text.yaml", "must hold lines", "name: value"),
    Mistake("train pearl point-robot --config scalar.yaml", "64", "a list", "hidden_sizes in scalar.yaml"),
    # -- words of other commands and libraries -------------------------------------------------------------------------
    Mistake("infer qcp-tt", "'qcp-tt'", "unknown environment", "did you mean 'qcp-st'"),
    Mistake("infer qcp-st --num-rounds x", "'x'", "a whole number", "--num-rounds must"),
    Mistake("infer qcp-st --density-estimator maf", "--density-estimator", "--method", "EstimatorConfig(model=...)"),
    Mistake("infer qcp-st --training-batch-size 3", "--training-batch-size", "--method", "Config(batch_size=...)"),
    Mistake("evaluate runs/ppo --num-episodes 0", "--num-episodes must", "at least 1", "got 0"),
    Mistake("evaluate runs/ppo --no-posterior-sampling", "--no-posterior-sampling", "that adapt", "--episodes N"),
    Mistake("evaluate runs/ppo --num-test-tasks 3", "--num-test-tasks is for", "held-out tasks", "--episodes N"),
    Mistake("train ppo Pendulum-v1 --transport serial --num-workers 2", "--num-workers", "got 2", "--transport pr"),
    Mistake("train ppo Pendulum-v1 --randomize-param mm=1:2", "--randomize-param", "'mm'", "did you mean 'm'"),
    Mistake("train ppo Pendulum-v1 --config vary.yaml", "randomize_param in vary.yaml", "'mm'", "did you mean 'm'"),
    Mistake("train sac Pendulum-v1 --jobs 3", "--jobs 3", "a group of runs", "--seeds N"),
    Mistake("train sac Pendulum-v1 --config seeds.yaml", "seeds in seeds.yaml", "a group of runs", "--seeds 3"),
    Mistake("train sac Pendulum-v1 --config command.yaml", "(in command.yaml)", "'command'", "Known"),
    Mistake("evaluate runs/ppo --num-episode 3", "--num-episode;", "did you mean", "--num-episodes?"),
    Mistake("evaluate runs/pearl --n-test-tasks 3", "--n-test-tasks", "did you mean", "--num-tasks"),
    Mistake("resume runs/pearl --learning-rate 1", "--learning-rate cannot", "(--qf-lr)", "--learning-rate ... --out"),
    Mistake("resume runs/ppo --gama 1", "--gama", "did you mean --gamma?", "cannot change in a run"),
    Mistake("resume runs/ppo --budget soon", "'soon'", "a time above 0", "--budget must"),
    Mistake("train cem Pendulum-v1 --batchsize 3", "--batchsize", "there are no minibatches", "--help"),
    Mistake("train ppo Pendulum-v1 --save-every 3", "--save-every", "did you mean --snapshot-gap", "--snapshot-mode"),
    Mistake("train ppo Pendulum-v1 --out-dir x", "--out-dir", "did you mean", "--out?"),
    Mistake("train sac Pendulum-v1 --train-freq 4", "--train-freq", "--update-to-data?", "0.25 is one gradient step"),
    Mistake(
        "train sac Pendulum-v1 --ent-coef auto_0.1", "'auto_0.1'", "--ent-coef must be a number", "--init-temperature"
    ),
    Mistake("train sac Pendulum-v1 --ent-coef foo", "'foo'", "--ent-coef must be a number or 'auto'", "'auto'"),
    Mistake(
        "train sac Pendulum-v1 --temperature null", "'null'", "--temperature must be a number", "none is written None"
    ),
    Mistake("train sac Pendulum-v1 --buffer-size 1e4", "'1e4'", "--buffer-size must be a whole number", "write 10000"),
    Mistake("train sac Pendulum-v1 --config exponent.yaml", "'1e4'", "replay_size in exponent.yaml", "write 10000"),
    Mistake("train ppo Pendulum-v1 --config out.yaml", "'out'", "no option of a run", "--out at the command line"),
    Mistake("train ppo Pendulum-v1 --config verbose.yaml", "'verbose'", "no option of a run", "--quiet at the"),
    Mistake("train ppo Pendulum-v1 --config posterior.yaml", "'tasks'", "no option of a run", "--tasks at the"),
    # -- what a file says, which learners and services refuse ----------------------------------------------------------
    Mistake("train sac Pendulum-v1 --config big.yaml", "got 3000", "(buffer_size in big.yaml)", "batch_size in big"),
    Mistake("train sac Pendulum-v1 --config big.yaml --seeds 2", "3000", "(buffer_size in big.yaml)", "batch_size in"),
    Mistake(
        "train sac Pendulum-v1 --config big.yaml --batch-size 2000", "got 2000", "buffer_size in big", "--batch-size"
    ),
    Mistake(
        "train sac Pendulum-v1 --config twice.yaml", "discount in twice.yaml", "given twice", "by gamma in twice.yaml"
    ),
    Mistake("train ppo qcp-st --config privileged.yaml", "privileged in", "got True", 'domain_params: ["pole_mass"]'),
    Mistake(
        "train ppo qcp-st --config privileged.yaml --domain-params pole_mass --seeds 0", "got 0", "at least 1", "--s"
    ),
    Mistake("train sac Pendulum-v1 --config dashes.yaml", "'policy-lr'", "in dashes.yaml", "mean 'policy_lr'?"),
    Mistake("train ppo Pendulum-v1 --config budget.yaml", "'soon'", "a time above 0", "budget in budget.yaml"),
    Mistake(
        "train ppo Pendulum-v1 --randomize default", "--randomize default", "no usual ranges", "--randomize-param g="
    ),
    Mistake("train ppo qcp-st --randomize-param lenght=0.3:0.7", "lenght", "known", "length"),
    Mistake("train ppo qcp-st --randomize-param length=0.7:0.3", "'length=0.7:0.3'", "LOW < HIGH", "length=0.3:0.7"),
    Mistake("train ppo qcp-st --randomize", "--randomize", "none", "default"),
    Mistake("train ppo qcp-st --randomize yes", "'yes'", "conservative, default, none", "--randomize must be one of"),
    Mistake(
        "train ppo qcp-st --privileged",
        "--privileged",
        "without --domain-params",
        "--domain-params pole_mass with --randomize default",
    ),
    Mistake(
        "train ppo qcp-st --domain-params pole_mass",
        "--domain-params pole_mass",
        "random domains",
        "--randomize default",
    ),
    Mistake("train ppo qcp-st --domain-params pole_mas", "pole_mas", "known", "pole_mass"),
    Mistake(
        "train distill qcp-st",
        "--teacher is missing",
        "metaroll train ppo qcp-st --randomize default --privileged --domain-params gravity_const",
        "--out runs/teacher",
    ),
    Mistake(
        "train distill CartPole-v1 --randomize-param length=0.3:0.7 --teacher no/run",
        "'no/run'",
        "no such folder",
        "--randomize-param length=0.3:0.7 --privileged --domain-params length --out",
    ),
    Mistake("train distill my_env:Cart --max-steps 9", "--teacher", "Train a", "ppo my_env:Cart --max-steps 9 --out"),
    Mistake("train distill Pendulum-v1", "--teacher", "Train a teacher", "metaroll train ppo Pendulum-v1 --out"),
    Mistake("train pearl cheetah-dir --num-train-tasks 5", "5", "2", "tasks"),
    Mistake(
        "train pearl point-robot --embedding-mini-batch-size 7",
        "--embedding-mini-batch-size",
        "--embedding-batch-size must be a multiple of",
        "got 64",
    ),
    Mistake("train pearl my_envv:family", "my_envv", "no module", "run in the folder of your file"),
    Mistake("train pearl my_env:famly", "'famly'", "Known:", "did you mean 'family'"),
    Mistake("train pearl torn:family", "SyntaxError", "cannot be imported", "python -c 'import torn'"),
    Mistake("train ppo my_env:Cart", "my_env:Cart", "no time limit", "--max-steps"),
    Mistake("train pearl my_env:wrong_constant", "'mas'", "known", "mass"),
    Mistake("check Pendulum-v1", "Pendulum-v1", "without tasks", "metaroll check my_env:family"),
    Mistake("resume", "the folder of the run is missing", "metaroll resume RUN", "[options]"),
    Mistake("resume empty", "empty", "is not a metaroll run directory", "runs/p"),
    Mistake("evaluate runs/ppo --adapted-episodes 3", "--adapted-episodes", "algorithms that adapt", "--episodes N"),
    Mistake("robustness runs/ppo --param g", "'g'", "FROM:TO:COUNT", "--param NAME"),
    Mistake("robustness runs/ppo --param g=1:2", "'1:2'", "FROM:TO:COUNT or V1,V2", "numbers"),
    Mistake("train pearl my_env:old --config tiny.yaml", "", "", ""),
    Mistake("train pearl my_env:shape --config tiny.yaml", "(3,)", "(2,)", "observation"),
    Mistake("train pearl my_env:nan --config tiny.yaml", "nan", "finite", "observation"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with files of a user, and two runs."""
    folder = tmp_path_factory.mktemp("user")
    texts = {
        "my_env.py": MY_ENV,
        "torn.py": "def family(:\n",
        "tiny.yaml": yaml.safe_dump({k: v for k, v in TINY.items() if not k.startswith("num_t") or "sample" in k}),
        "wrong_type.yaml": "batch_size: many",
        "unknown.yaml": "batch_sise: 3",
        "text.yaml": "just words",
        "scalar.yaml": "hidden_sizes: 64",
        "big.yaml": "{batch_size: 3000, buffer_size: 1000}",
        "twice.yaml": "{gamma: 0.9, discount: 0.9}",
        "privileged.yaml": "privileged: true",
        "dashes.yaml": "policy-lr: 0.1",
        "budget.yaml": "budget: soon",
        "vary.yaml": "randomize_param: [mm=1:2]",
        "seeds.yaml": "seeds: 3",
        "command.yaml": "command: train",
        "out.yaml": "out: my_run",
        "exponent.yaml": "replay_size: 1e4",
        "verbose.yaml": "verbose: 1",
        "posterior.yaml": "tasks: infer/1",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "empty").mkdir()
    (folder / "tasks.yaml").write_text(yaml.safe_dump(TINY))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        arguments = ["--config", str(folder / "tasks.yaml"), "--epochs", "1", "--out", "runs/pearl", "--quiet"]
        assert main(["train", "pearl", "point-robot", *arguments]) == 0
        assert main(["train", "ppo", "Pendulum-v1", *PPO, "--out", "runs/ppo", "--quiet"]) == 0
    return folder


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    yield place
    for name in ("my_env", "torn"):
        sys.modules.pop(name, None)


@pytest.fixture
def without_packages(monkeypatch):
    """Gymnasium as it is where MuJoCo and Box2D are not installed."""
    make = gymnasium.make

    def refuse(spec, **options):
        name = spec if isinstance(spec, str) else spec.id
        if name in ("HalfCheetah-v5", "LunarLander-v3"):
            extra = {"HalfCheetah-v5": "mujoco", "LunarLander-v3": "box2d"}[name]
            text = f'{extra} is not installed, run `pip install "gymnasium[{extra}]"`'
            raise gymnasium.error.DependencyNotInstalled(text)
        return make(spec, **options)

    monkeypatch.setattr(gymnasium, "make", refuse)


@pytest.mark.parametrize("row", ROWS, ids=[row.typed.replace(" ", "_") for row in ROWS])
def test_a_mistake_names_what_came_what_is_expected_and_what_to_do(row, here, without_packages, capsys):
    status = main(row.typed.split())
    err = capsys.readouterr().err
    told = " ".join(err.split())
    assert status == 2, told
    assert "Traceback" not in told and "internal error" not in told
    for part in (row.came, row.expected, row.hint):
        assert part in told, told
    assert len(told) < 1000


def test_nearly_all_mistakes_of_the_review_are_here():
    assert len(ROWS) >= 62


def test_an_own_environment_that_raises_while_it_is_made_is_no_internal_error(here, capsys):
    (here / "raises.py").write_text("def make():\n    raise LookupError('no such robot')\n")
    assert main(["train", "ppo", "raises:make"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "no such robot" in told and "raises.py, line 2, in make" in told


def test_sizes_are_recorded_and_refused_where_nothing_was_published(here, capsys):
    assert main(["train", "pearl", "my_env:family", "--size", "paper"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "size 'paper' needs values that were published" in told and "cheetah-vel" in told and "--size small" in told
    assert main(["train", "ppo", "Pendulum-v1", "--size", "paper"]) == 2
    assert "none is known here for ppo" in " ".join(capsys.readouterr().err.split())
    assert main(["train", "pearl", "my_env:family", "--size", "tiny"]) == 2
    assert "unknown size 'tiny'" in " ".join(capsys.readouterr().err.split())
    config = json.loads(json.dumps(yaml.safe_load((here / "runs" / "pearl" / "config.yaml").read_text())))
    assert config["run"]["size"] == "paper"
