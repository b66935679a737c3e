"""What is shown while a run trains, with a clock that the test moves."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from rich.console import Console

import metaroll
from metaroll.configs.inference import InferenceOptions
from metaroll.envs.lookup.source import EnvSource
from metaroll.inference.neural import InferenceProgress
from metaroll.lab.cli.commands.infer import progress_reporter
from metaroll.lab.cli.main import main
from metaroll.lab.cli.runs.group_display import GroupDisplay
from metaroll.lab.display.consoles import make_console
from metaroll.lab.display.progress import EvaluationDisplay, TrainingDisplay, short
from metaroll.lab.display.timing import RunAmounts, RunTiming, about, after_epoch, duration, seconds_of
from metaroll.lab.display.view import ConsoleView
from metaroll.learners.on_policy.ppo import PPO
from metaroll.policies.gaussian import GaussianMLPPolicy
from metaroll.rollouts.workers.pool import SamplerPool
from metaroll.training.evaluation.evaluation_result import EvaluationResult
from metaroll.training.run.progress import PhaseProgress
from metaroll.training.run.runner import LocalRunner
from metaroll.training.session import experiments
from metaroll.training.session.step_goal import LastEvaluation
from metaroll.types import EnvSpec


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def result(before: float, after: float) -> EvaluationResult:
    spread = np.linspace(-1.0, 1.0, 5)[:, None]
    returns = np.stack([before + spread, after + spread], axis=2)
    return EvaluationResult(returns, 1, tasks=[None] * 5, task_names=["t"] * 5, cells=[])


def play(terminal: bool, epochs: int = 2, width: int = 120) -> str:
    clock, text = Clock(), io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=width, color_system=None)
    display = TrainingDisplay(console, "pearl learns", 4, updates_per_epoch=500, clock=clock)
    runner = SimpleNamespace(total_env_steps=0)
    with display:
        for epoch in range(epochs):
            clock.now += 10.0
            runner.total_env_steps += 4000
            display.on_evaluation(runner, result(-20.0, -10.0 - epoch))
            display.on_epoch_end(runner, epoch, {})
    return text.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (61, "1:01"), (3600, "1:00:00"), (-1, "0:00")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_an_agent_before_its_first_epoch_is_untrained():
    assert [after_epoch(n) for n in (0, 1, 2)] == [
        "before its first epoch: untrained",
        "after 1 epoch",
        "after 2 epochs",
    ]


def test_without_a_terminal_every_epoch_is_one_plain_line():
    lines = play(terminal=False).splitlines()
    # 4000 steps and 500 updates in 10 s; two epochs of 10 s are left after the second of four.
    assert len(lines) == 2
    assert lines[0].startswith("epoch 1/4  4,000 env steps  400 steps/s  50 updates/s  return -20.0 -> -10.0 [")
    assert lines[1].startswith("epoch 2/4  8,000 env steps  400 steps/s  50 updates/s  return -20.0 -> -11.0 [")
    assert lines[1].endswith("0:20 of training, 0:20 left")


def test_a_terminal_gets_a_table_that_holds_the_rows():
    shown = play(terminal=True)
    for text in ("pearl learns", "env steps", "updates/s", "before", "8,000", "-20.0", "-11.0"):
        assert text in shown


@pytest.mark.parametrize("terminal", [True, False])
def test_brackets_in_the_name_of_an_environment_are_no_markup(terminal, tmp_path):
    env, text = EnvSource.of("CartPole-v1"), io.StringIO()
    view = ConsoleView(Console(file=text, force_terminal=terminal, width=200, color_system=None))
    config = experiments.resolve("ppo", env, [], command="train") | {"env": "pend@runs/[bold]/[/x]"}
    algo = experiments.build({**config, "env": "CartPole-v1"}, None, (), env).algo
    view.new_run(config, algo, env, tmp_path / "[/y]", None)()
    with view.training(config) as display:
        display.on_epoch_end(SimpleNamespace(total_env_steps=10), 0, {})
    assert f"ppo on {config['env']}: " in text.getvalue()
    assert f"run folder {tmp_path}/[/y]\n" in text.getvalue()
    assert (f"training ppo on {config['env']} " in text.getvalue()) == terminal


def test_a_resumed_run_counts_from_where_it_stood():
    clock = Clock()
    text = io.StringIO()
    display = TrainingDisplay(Console(file=text, width=120), "t", 4, updates_per_epoch=10, clock=clock)
    runner = SimpleNamespace(total_env_steps=9000)
    with display:
        clock.now += 5.0  # to start workers, say
        display.start_from(2, 8000, seconds=60.0)
        clock.now += 2.0
        # The run says that it took 62 seconds in all, 2 of them now.
        display.on_epoch_end(runner, 2, {"time/epoch_seconds": 2.0, "time/total_seconds": 62.0})
    assert display.seconds == 62.0
    assert text.getvalue() == "epoch 3/4  9,000 env steps  500 steps/s  5 updates/s  1:02 of training, 0:02 left\n"


def test_an_epoch_without_an_evaluation_shows_none():
    clock, text = Clock(), io.StringIO()
    display = TrainingDisplay(Console(file=text, width=120), "t", 4, updates_per_epoch=10, clock=clock)
    runner = SimpleNamespace(total_env_steps=0)
    display.start_from(0, 0, seconds=5.0)
    with display:
        display.on_evaluation(runner, result(-20.0, -10.0))
        display.on_epoch_end(runner, 0, {})
        display.on_epoch_end(runner, 1, {})
    first, second = text.getvalue().splitlines()
    assert "return -20.0 -> -10.0" in first
    assert "return" not in second
    display.start_from(2, 0, seconds=5.0)
    assert display.seconds == 5.0


def test_an_evaluation_is_that_of_its_epoch_alone():
    runner: Any = None
    last, made = LastEvaluation(), result(-20.0, -10.0)
    last.on_evaluation(runner, made)
    for epoch in (0, 1):
        last.on_epoch_end(runner, epoch, {})
    assert last.result_of(1) is made
    assert last.result_of(2) is None


@pytest.mark.parametrize(
    ("width", "missing"), [(80, []), (60, ["steps/s", "updates/s"]), (45, ["steps/s", "env steps"])]
)
def test_a_narrow_terminal_loses_rates_before_returns(width, missing):
    shown = play(terminal=True, width=width)
    assert "…" not in shown
    assert "-11.0 [-1" in shown
    assert all(name not in shown for name in missing)


AMOUNTS = RunAmounts(initial_steps=1000, epoch_steps=100, epoch_updates=50, evaluation_steps=200, evaluate_every=2)


class Played:
    """A run of four epochs: 1,000 steps of warm-up at 100/s; then 100 steps, 50 updates at 2/s, sometimes 200 steps."""

    def __init__(self, amounts: RunAmounts | None = AMOUNTS, terminal: bool = False, width: int = 120, **options):
        self.clock, self.text, self.runner = Clock(), io.StringIO(), SimpleNamespace(total_env_steps=0, n_epochs=4)
        console = Console(file=self.text, force_terminal=terminal, width=width, color_system=None, **options)
        self.display = TrainingDisplay(console, "t", None, 50, self.clock, amounts=amounts)

    @property
    def lines(self) -> list[str]:
        return self.text.getvalue().splitlines()

    def phase(self, name: str, total: int, seconds: float, until: int | None = None, ticks: int = 10) -> None:
        self.display.on_progress(self.runner, name, 0, total)
        end = total if until is None else until
        for tick in range(1, ticks + 1):
            self.clock.now += seconds / ticks
            self.display.on_progress(self.runner, name, end * tick // ticks, total)

    def epoch(self, number: int) -> None:
        if number == 0:
            self.phase("warm-up", 1000, 10.0)
        self.phase("sampling", 100, 1.0)
        self.phase("updates", 50, 25.0)
        if number % 2:
            self.phase("evaluation", 6, 2.0)
            self.display.on_evaluation(self.runner, result(-20.0, -10.0))
        self.display.on_epoch_end(self.runner, number, {})


def test_a_log_hears_of_a_long_epoch_at_once_and_then_every_ten_seconds():
    run = Played(amounts=None)
    with run.display:
        run.display.on_progress(run.runner, "warm-up", 0, 1000)
        assert run.lines == ["epoch 1/4  warm-up 0/1,000"]
        run.phase("warm-up", 1000, 35.0, ticks=140)
    said = [re.match(r"epoch 1/4  warm-up ([\d,]+)/1,000  left: (\S+)$", line) for line in run.lines[1:]]
    assert [(found[1], found[2]) for found in said] == [("285", "0:25"), ("571", "0:15"), ("857", "0:05")]


def test_short_epochs_get_no_lines_between():
    run = Played(amounts=None)
    with run.display:
        for number in range(3):
            run.phase("sampling", 100, 1.0)
            run.display.on_epoch_end(run.runner, number, {})
    assert [line.split("  ")[1] for line in run.lines] == [
        "sampling 0/100",
        "0 env steps",
        "0 env steps",
        "0 env steps",
    ]


def test_the_time_that_the_run_takes_is_told_in_the_first_seconds():
    run = Played()
    run.display.expect(lambda: 0.5)
    with run.display:
        run.phase("warm-up", 1000, 1.25, until=125)
    # Of 10 s of warm-up 9 are left; four epochs of 1 and 25 s; two evaluations of 200 steps.
    assert run.lines[0] == "epoch 1/4  warm-up 0/1,000"
    assert run.lines[1] == (
        "about 2 minutes on this machine: warm-up 0:09, 4 epochs of sampling 0:01 and updates 0:25, "
        "2 evaluations of 0:02"
    )
    assert run.display._timing.run_left() == pytest.approx(8.75 + 4 * 26 + 2 * 2)


def test_short_runs_are_not_announced():
    run = Played(RunAmounts(initial_steps=0, epoch_steps=10, epoch_updates=5, evaluation_steps=0, evaluate_every=0))
    with run.display:
        run.phase("sampling", 10, 1.0)
        run.phase("updates", 5, 2.0)
        run.display.on_epoch_end(run.runner, 0, {})
    assert not any(line.startswith("about") for line in run.lines)


@pytest.mark.parametrize("amounts", [AMOUNTS, None])
def test_the_time_left_is_right_and_goes_on_counting_within_an_epoch(amounts):
    run = Played(amounts)
    timing = run.display._timing
    with run.display:
        run.epoch(0)
        # Three epochs of 26 s; evaluations of 2 s are expected where their number is known.
        assert timing.run_left() == pytest.approx(3 * 26 + (2 * 2 if amounts else 0), abs=2.1)
        run.epoch(1)
        assert timing.run_left() == pytest.approx(2 * 27, abs=0.1)
        run.phase("sampling", 100, 1.0)
        run.phase("updates", 50, 10.0, until=20)
        run_left, epoch_left = timing.run_left(), timing.epoch_left()
        assert timing.phase_left() == pytest.approx(15.0)
        assert epoch_left == pytest.approx(15.0 if amounts else 16.0)
        run.clock.now += 4.0  # no news, but time goes by
        assert timing.run_left() == pytest.approx(run_left - 4.0)
        assert timing.epoch_left() == pytest.approx(epoch_left - 4.0)


def test_the_time_left_of_a_run_elsewhere_follows_from_its_epochs():
    # The first epoch makes environments: it does not count once there are others.
    for seconds, left in (([], None), ([30.0], 90.0), ([30.0, 2.0, 4.0], 3.0), ([1.0] * 4, 0.0)):
        assert RunTiming.of_epochs(seconds, 4).run_left() == left


def test_nobody_hears_of_a_quiet_run():
    run = Played(quiet=True)
    with run.display:
        run.epoch(0)
    assert run.lines == []


@pytest.mark.parametrize("width", [80, 140, 50])
def test_a_terminal_shows_the_phase_and_what_is_left_without_cutting_anything(width):
    run = Played(terminal=True, width=width)
    with run.display:
        run.epoch(0)
        run.epoch(1)
        run.phase("updates", 50, 10.0, until=20)
        run.display._live.refresh()
        shown = run.text.getvalue()
    assert "epoch 3/4  updates 20/50  left: " in shown
    assert ("left: 0:15, epoch 0:15, run 0:43" in shown) == (width >= 80)
    assert "…" not in shown


def test_large_returns_push_out_rates_rather_than_be_cut():
    clock, text = Clock(), io.StringIO()
    console = Console(file=text, force_terminal=True, width=80, color_system=None)
    display = TrainingDisplay(console, "t", 2, 10, clock)
    with display:
        display.on_evaluation(None, result(-12345678.0, -12345678.0))
        display.on_epoch_end(SimpleNamespace(total_env_steps=123456789), 0, {})
    shown = text.getvalue()
    assert "-12345678.0 [-12345678" in shown and "123,456,789" in shown
    assert "…" not in shown and "steps/s" not in shown


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (0.0123, "0.0123"), (-1.5, "-1.50"), (9.99, "9.99"), (9.999, "10.0"), (-123.45, "-123.5")],
)
def test_small_returns_keep_three_digits(value, text):
    assert short(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (70, "about 1 minute"),
        (600, "about 10 minutes"),
        (3600 * 3.25, "about 3.2 hours"),
        (86400 * 9, "about 9 days"),
        (86400 * 700, "about 1.9 years"),
    ],
)
def test_times_in_words(seconds, text):
    assert about(seconds) == text


@pytest.mark.parametrize("seconds", [0, 59, 61, 3600, 172799, 9 * 86400 + 7200])
def test_times_are_read_as_they_are_written(seconds):
    assert seconds_of(duration(seconds)) == seconds


def test_a_group_of_runs_is_one_table_with_what_each_of_them_said():
    run, text = Played(), io.StringIO()
    run.display.expect(lambda: 0.5)
    with run.display:
        run.epoch(0)
        run.epoch(1)
    done = run.lines
    with run.display:
        run.phase("updates", 50, 10.0, until=20)
    clock = Clock()
    console = Console(file=text, force_terminal=True, width=80, color_system=None)
    with GroupDisplay(console, ["seed-0", "seed-1", "seed-2"], clock) as group:
        group.begin("seed-0", "runs/seed-0")
        group.begin("seed-1", "runs/seed-1")
        group.read("seed-0", done)
        assert group.rows["seed-0"].epoch == "2/4" and group.rows["seed-0"].phase == ""
        group.read("seed-0", run.lines[len(done) :])
        row = group.rows["seed-0"]
        assert (row.epoch, row.phase, row.returns[:14]) == ("3/4", "updates 20/50", "-20.0 -> -10.0")
        left = row.ends - clock.now
        clock.now += 3.0
        group._live.refresh()
        shown = text.getvalue()
        assert "training runs" not in shown
    assert f" {duration(left - 3.0)} " in shown and "starting" in shown and "waiting" in shown
    assert "-20.0 -> -10.0 [-10." in shown


def test_a_group_in_a_log_gives_lines_with_the_names_of_the_runs():
    text = io.StringIO()
    with GroupDisplay(Console(file=text, width=80), ["seed-0", "seed-1"], Clock()) as group:
        group.begin("seed-0", "runs/seed-0")
        group.read("seed-0", ["epoch 1/4  updates 20/50  left: 0:15"])
        for returns, shown in (
            ("211.0", "211.0 in training"),
            ("211.0, evaluation 150.0 [140, 160]", "211.0 in training, evaluation 150.0 [140, 160]"),
            ("evaluation -265.7", "evaluation -265.7"),  # no episode has ended in this epoch
        ):
            group.rows["seed-0"].read(f"epoch 1/4  100 env steps  return {returns}  0:01 of training", 0.0)
            assert group.rows["seed-0"].returns == shown
        group.end("seed-0", "runs/seed-0", None, 157.81)
        assert group.rows["seed-0"].returns == "157.8"  # that of the final evaluation, as in `metaroll list`
        group.end("seed-1", "runs/seed-1", "no such thing")
    assert text.getvalue().splitlines() == [
        "training runs/seed-0",
        "seed-0: epoch 1/4  updates 20/50  left: 0:15",
        "runs/seed-0 done, return 157.8",
        "runs/seed-1 failed: no such thing",
    ]


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, int, int]] = []

    def on_progress(self, runner: LocalRunner, phase: str, done: int, total: int) -> None:
        self.heard.append((phase, done, total))


SHORT = {"max_path_length": 20, "hidden_sizes": (4,), "evaluate_every": 1, "num_episodes": 2}


@pytest.mark.parametrize(
    ("algo", "options", "totals"),
    [
        ("ppo", {"steps_per_epoch": 40, "num_passes": 3, "batch_size": 20}, {"sampling": 40, "updates": 6}),
        (
            "epopt",
            {"rollouts_per_epoch": 4, "num_passes": 1, "batch_size": 40, "randomize": "none"},
            {"sampling": 4, "updates": 2},
        ),
        ("hill-climbing", {"pop_size": 3, "num_init_states_per_domain": 2}, {"sampling": 8}),
    ],
)
def test_every_algorithm_tells_its_phases_in_python_too(tmp_path, algo, options, totals):
    listener = Listener()
    agent = metaroll.agent(algo, "Pendulum-v1", run_dir=tmp_path / "run", **SHORT, **options)
    agent.learn(epochs=1, callbacks=[listener], progress=False)
    expected = {**totals, "evaluation": 2}
    assert list(dict.fromkeys(phase for phase, _, _ in listener.heard)) == list(expected)
    for phase, total in expected.items():
        news = [(done, of) for name, done, of in listener.heard if name == phase]
        assert news[0][0] <= 1 and news[-1] == (total, total)
        assert news == sorted(news)


def test_a_display_given_to_a_runner_in_python_shows_what_the_command_line_shows():
    text = io.StringIO()
    spec = EnvSpec.from_env(gymnasium.make("Pendulum-v1"))
    learner = PPO(
        spec, policy=GaussianMLPPolicy(spec, hidden_sizes=(4,)), seed=0, max_steps=20, steps_per_epoch=40, num_passes=1
    )
    with TrainingDisplay(Console(file=text, width=120), adapts=False) as display:
        with LocalRunner(seed=0, callbacks=[display]) as runner:
            runner.setup(learner, "Pendulum-v1")
            runner.train(n_epochs=2)
    first, *epochs = text.getvalue().splitlines()
    assert first == "epoch 1/2  sampling 0/40"
    assert [line.split("  ")[:2] for line in epochs] == [["epoch 1/2", "40 env steps"], ["epoch 2/2", "80 env steps"]]


def test_runners_of_others_that_hear_no_progress_still_train():
    class Plain:
        """As a runner was before there was progress."""

        step_itr = total_env_steps = 0

        def __init__(self, runner: LocalRunner) -> None:
            self._runner = runner

        def step_epochs(self):
            return range(1)

        def obtain_samples(self, *args, **options):
            return self._runner.obtain_samples(*args, **options)

        def evaluate(self, *args):
            return 0.0

        def log(self, metrics):
            self.metrics = metrics

    spec = EnvSpec.from_env(gymnasium.make("Pendulum-v1"))
    learner = PPO(
        spec, policy=GaussianMLPPolicy(spec, hidden_sizes=(4,)), seed=0, max_steps=20, steps_per_epoch=40, num_passes=1
    )
    with LocalRunner(seed=0) as runner:
        runner.setup(learner, "Pendulum-v1")
        plain = Plain(runner)
        learner.train(plain)
    assert "return" in plain.metrics


def test_news_between_beginnings_and_ends_is_told_after_a_pause_only():
    clock = Clock()
    progress = PhaseProgress(clock, pause=1.0)
    assert progress.say("updates", 0, 1000)
    assert not any(progress.say("updates", done, 1000) for done in range(1, 500))
    clock.now += 1.0
    assert progress.say("updates", 500, 1000) and not progress.say("updates", 501, 1000)
    assert progress.say("updates", 1000, 1000) and not progress.say("updates", 1000, 1000)
    assert progress.say("warm-up", 0, 60)  # steps of rollouts are added to it
    clock.now += 1.0
    assert not progress.expect_rollouts(20, 0) and progress.add(2, 40) and progress.done == 40
    assert progress.add(2, 40) and progress.done == 60  # rollouts are never cut, so that there may be more
    progress.forget()
    assert progress.expect_rollouts(None, 4) and not progress.add(1, 999)
    assert (progress.phase, progress.done, progress.total) == ("sampling", 1, 4)


def test_an_evaluation_that_takes_long_says_how_far_it_is():
    text, clock = io.StringIO(), Clock()
    with EvaluationDisplay(Console(file=text, width=80), clock) as display:
        for done in range(0, 61):
            display(done, 120)
            clock.now += 0.5
    lines = text.getvalue().splitlines()
    assert lines[0] == "evaluation 4/120 episodes  left: 0:58"  # after two seconds, and then every ten
    assert [line.split()[1] for line in lines] == ["4/120", "24/120", "44/120"]
    text.truncate(0)
    with EvaluationDisplay(Console(file=text, width=80), Clock()) as display:
        display(0, 120)
        display(120, 120)
    assert not text.getvalue().strip("\0")


def test_an_evaluation_is_shown_in_place_in_a_terminal():
    text, clock = io.StringIO(), Clock()
    console = Console(file=text, force_terminal=True, width=80, color_system=None)
    with EvaluationDisplay(console, clock) as display:
        display(0, 120)
        clock.now += 10
        display(30, 120)
    assert "evaluation 30/120 episodes  left: 0:30" in text.getvalue()


def test_the_final_study_and_evaluate_tell_how_far_they_are(tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(EvaluationDisplay, "__call__", lambda self, done, total: heard.append((done, total)))
    monkeypatch.chdir(tmp_path)
    agent = metaroll.agent("ppo", "Pendulum-v1", epochs=1, steps_per_epoch=400, hidden_sizes=(8,), evaluate_every=0)
    agent.learn(progress=False)
    assert heard[0] == (0, 20) and heard[-1] == (20, 20)
    heard.clear()
    assert main(["evaluate", str(agent.run_dir), "--episodes", "3", "--quiet"]) == 0
    assert heard[-1] == (3, 3)


def test_a_notebook_gets_lines_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUPYTER_COLUMNS", raising=False)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert make_console().width == 80
    monkeypatch.setenv("JUPYTER_COLUMNS", "140")
    assert make_console().width == 140


def test_workers_have_started_before_time_is_measured(tmp_path, monkeypatch):
    """Else the seconds of their start are taken for those of the first steps, and all runs for very long ones."""
    monkeypatch.chdir(tmp_path)
    events = []
    run = SamplerPool.invoke_own

    def noted(pool, function, *args, **options):
        found = run(pool, function, *args, **options)
        events.append([worker.pid for worker in pool.describe_workers()])
        return found

    monkeypatch.setattr(SamplerPool, "invoke_own", noted)
    told = SimpleNamespace(on_progress=lambda runner, phase, done, total: events.append(phase))
    agent = metaroll.agent("ppo", "Pendulum-v1", num_workers=2, steps_per_epoch=200, hidden_sizes=(4,), epochs=1)
    agent.learn(callbacks=[told], progress=False)
    assert len(set(events[0])) == 2
    assert events[1] == "sampling"


def test_infer_says_after_its_first_round_about_how_long_the_others_take() -> None:
    told, shown, now = io.StringIO(), [], [0.0]
    console = Console(file=told, width=200)
    progress = progress_reporter(console, shown.append, InferenceOptions(num_simulations=2000), lambda: now[0])

    def tell(phase, number, done, total, at):
        now[0] = at
        progress(InferenceProgress(phase, number, 4, done, total))

    tell("simulate", 1, 0, 400, 0.0)
    tell("simulate", 1, 400, 400, 40.0)  # ten in a second
    tell("train", 1, 400, 400, 40.0)
    tell("simulate", 2, 0, 400, 60.0)
    # 1,600 simulations and 1,000 of the checks take 260 s, five times as much as was learned 100 s.
    assert "about 6 minutes to go" in told.getvalue()
    tell("simulate", 3, 0, 400, 99.0)
    assert told.getvalue().count("to go") == 1 and shown[0] == "round 1 of 4: 0 of 400 simulations"
    tell("simulate", 4, 0, 800, 110.0)
    tell("train", 4, 800, 800, 110.0)  # (they were there)
    tell("check", 4, 0, 1, 140.0)
    tell("simulate", 5, 0, 800, 290.0)
    # Checks take 150 s, 800 of the 1,000 simulations that they make 120, learning 30.
    assert "the posterior fails tests that more simulations can fix: one more round, about 5 minutes" in told.getvalue()
