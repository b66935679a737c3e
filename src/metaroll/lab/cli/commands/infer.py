"""The commands ``infer`` and ``sim2real``: from a log to a posterior, and the complete loop on a simulated robot."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.panel import Panel
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from metaroll.concepts import concepts_named
from metaroll.config import options_of
from metaroll.configs.inference import InferenceOptions, LoopOptions
from metaroll.errors import UnknownNameError, UsageError, blame_input, command_text, counted, named_as
from metaroll.inference.configs import EstimatorConfig
from metaroll.lab.cli.options import Output, parse, parse_command, renamed_flags, unset, with_config
from metaroll.lab.display.consoles import escape, print_table
from metaroll.lab.display.timing import about
from metaroll.lab.results.inference_result import ONE_MORE_ROUND, PAGE

if TYPE_CHECKING:
    from metaroll.inference.neural import InferenceProgress

__all__ = ["infer", "progress_reporter", "sim2real"]

_CHECKED = 1000
"""Approximate number of simulations for the checks: they run 300 to 900, and 200 to 800 more."""


@dataclass(frozen=True, kw_only=True)
class _InferArguments:
    data: Annotated[str | None, unset("FOLDER", "none")] = None
    """Recorded rollouts: a folder written by metaroll import-log or metaroll.save_rollouts."""
    out: Annotated[str | None, unset("DIR", "runs/infer-SIM-SEED")] = None
    """Folder for the posterior, the simulations and the page; simulations in it for the same recordings and settings
    are reused, unless the simulator has changed."""
    param: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=LOW:HIGH")] = ()
    """An unknown parameter and its range; may be repeated. Without it: the parameters that the simulator usually
    varies, from half to one and a half times their values."""
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class _LoopArguments:
    out: str = "runs/sim2real"
    """Output folder; earlier output in it is moved to a folder beside it."""
    output: Output = field(default_factory=Output)


def infer(arguments: Sequence[str]) -> None:
    """Infer the parameters of a simulator from recorded rollouts."""
    usage = "metaroll infer SIM --data FOLDER [options]"
    about = (
        "Infers a posterior over the parameters of SIM from recorded rollouts, predicts held-out rollouts with it, and "
        "writes a page. To train on it: metaroll train ALGO SIM --tasks FOLDER. See docs/inference.md."
    )
    kind = with_config(_InferArguments, "inference", InferenceOptions)
    arguments_here, typed_names = renamed_flags(arguments, options_of(InferenceOptions))
    with named_as(typed_names):
        try:
            names, args = parse_command(kind, arguments_here, usage, about, "the name of the simulator is missing")
        except UnknownNameError:
            _refuse_settings_of_networks(arguments)
            raise
        _infer(arguments, names, args, usage)


def _refuse_settings_of_networks(arguments: Sequence[str]) -> None:
    """Raise an error if an option belongs to the estimator, which ``--method`` configures here."""
    known = {option.name for option in options_of(EstimatorConfig)} - {
        option.name for option in options_of(InferenceOptions)
    }
    for flag in (argument.split("=")[0] for argument in arguments if argument.startswith("--")):
        name = flag[2:].replace("-", "_")
        meant = [name, *(field for concept in concepts_named(name) for field in concept.fields)]
        if field := next((field for field in meant if field in known), ""):
            raise UnknownNameError(
                f"unknown option {flag}; --method sets how networks learn, EstimatorConfig({field}=...) in Python "
                "(docs/inference.md)"
            )


def _infer(arguments: Sequence[str], names: Sequence[str], args: Any, usage: str) -> None:
    from metaroll.data.folders.kinds import INFER
    from metaroll.data.folders.taking import refuse_foreign, take
    from metaroll.data.recordings import load_rollouts
    from metaroll.envs.lookup.source import EnvSource
    from metaroll.inference.estimators import require_sbi
    from metaroll.lab.display.json_output import print_json
    from metaroll.lab.inferring.inferring import infer as run
    from metaroll.lab.inferring.inferring import usual_prior
    from metaroll.lab.inferring.log_checks import doubts_about
    from metaroll.lab.inferring.pieces import even_pieces
    from metaroll.lab.report.inference_page import write_inference_page
    from metaroll.training.session.run_config import default_run_dir

    console, env = args.output.console(), EnvSource.of(names[0])
    with blame_input():
        env.spec  # noqa: B018 (an unknown name is an error of its own)
        options = InferenceOptions(**vars(args.inference))
        if args.data is None:
            raise UsageError(f"{usage}: --data FOLDER is missing: a folder of recorded rollouts (metaroll import-log)")
        folder = default_run_dir("infer", env, options.seed) if args.out is None else Path(args.out).expanduser()
        data = Path(args.data).expanduser()
        if data.is_file():
            made = command_text("import-log", data, "--mapping", "MAPPING", "--env", names[0], "--out", "FOLDER")
            raise UsageError(
                f"--data must be a folder of recorded rollouts, got the file {data}; convert a log with "
                f"{made} (docs/robot_logs.md)"
            )
        rollouts = load_rollouts(data)
        prior = usual_prior(env, args.param)
        require_sbi()
        refuse_foreign(folder, INFER)
        _about(console, rollouts, prior, even_pieces(rollouts, options.segment_length, options.hold_out + 1).text)
        for text in doubts_about(env, rollouts):
            console.print(f"[yellow]check:[/] {escape(text)}", soft_wrap=True)
        with _status_line(console) as show_status:
            try:
                result = run(
                    env, rollouts, prior, folder, options, progress=progress_reporter(console, show_status, options)
                )
            except KeyboardInterrupt as error:  # finished simulations are kept
                error.resume_command = command_text("infer", *arguments)  # type: ignore[attr-defined]
                raise
        with take(folder, INFER):
            page = write_inference_page(result, folder / PAGE)
    _show(console, result)
    console.print(f"page {escape(str(page))}", soft_wrap=True)
    command = ["train", "ALGO", names[0], "--tasks", folder]
    if env.spec.max_episode_length is None:
        command += ["--max-steps", str(max(map(len, rollouts)))]
    intro = "to train on it" if result.trusted else "to train once the checks pass"
    intro = intro if result.checks else "not checked (--no-checks); to train on it anyway"
    console.print(f"{intro}: {escape(command_text(*command))}", soft_wrap=True)
    if args.output.json:
        print_json({**result.to_dict(), "folder": str(folder), "page": str(page)})


def sim2real(arguments: Sequence[str]) -> None:
    """Run the complete loop on a simulated robot."""
    usage = "metaroll sim2real demo [options]"
    about = (
        "A simulator with hidden parameters stands for the robot: log rollouts, infer a posterior, train a policy on "
        "it, and compare it with nominal training, plain randomization and an oracle that knows the true parameters. "
        "Takes a few minutes on two cores."
    )
    rest = list(arguments)
    if rest and rest[0] == "demo":
        rest.pop(0)
    elif rest and not rest[0].startswith("-"):
        raise UsageError(f"{usage}: the only subcommand is demo, got {rest[0]!r}")
    args = parse(with_config(_LoopArguments, "loop", LoopOptions), rest, "metaroll sim2real demo", about)
    from metaroll.lab.display.json_output import print_json
    from metaroll.lab.inferring.sim2real import close_the_loop

    console = args.output.console()
    with blame_input():
        result = close_the_loop(
            Path(args.out).expanduser(), LoopOptions(**vars(args.loop)), lambda text: console.print(escape(text))
        )
        page = _write_loop_page(result)
    _show(console, result.inference, result.truth)
    console.print(_loop_panel(result))
    console.print(f"page {escape(str(page))}", soft_wrap=True)
    if args.output.json:
        print_json({**result.to_dict(), "page": str(page)})


def _about(console: Console, rollouts: Sequence[Any], prior: Any, left_out: str) -> None:
    lengths = sorted({len(rollout) for rollout in rollouts})
    steps = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    count = counted(len(rollouts), "rollout")
    console.print(f"{count} of {steps} steps; unknown: {escape(', '.join(prior.names))}", soft_wrap=True)
    if left_out:
        console.print(f"[yellow]{escape(left_out)}[/]", soft_wrap=True)


@contextlib.contextmanager
def _status_line(console: Console) -> Iterator[Callable[[str], None]]:
    """Show the current step and its duration in a terminal; yields the function that changes the text."""
    columns = (SpinnerColumn("line"), TextColumn("{task.description}"), TimeElapsedColumn())
    # Warnings go where the user has sent them: above the status line if that is the same terminal.
    live = {"transient": True, "redirect_stderr": sys.stderr.isatty(), "disable": not console.is_terminal}
    with Progress(*columns, console=console, **live) as status:
        task = status.add_task("inspecting the simulator", total=None)
        step = ""

        def update(text: str) -> None:
            nonlocal step
            if text.partition(":")[0] != step:
                step = text.partition(":")[0]
                status.reset(task)
            status.update(task, description=text)

        yield update


def progress_reporter(
    console: Console,
    show: Callable[[str], None],
    options: InferenceOptions,
    clock: Callable[[], float] = time.perf_counter,
) -> Callable[[InferenceProgress], None]:
    """Show progress and, after the first round, roughly how long the others will take."""
    started: dict[str, float] = {}

    def progress(state: InferenceProgress) -> None:
        where = f"round {state.round_number} of {state.rounds}"
        started.setdefault(f"{state.phase} {state.round_number}", clock())
        if state.phase == "simulate" and state.round_number == 2 and not state.done:
            learning = started["simulate 2"] - started["train 1"]
            simulating = started["train 1"] - started["simulate 1"]
            left = options.num_simulations / state.total - 1.0 + _CHECKED * options.checks / state.total
            seconds = simulating * left + learning * (state.rounds + 1.0)
            console.print(f"{about(max(seconds, 60.0))} to go")
        if state.phase == "simulate" and state.round_number > options.rounds and not state.done:
            # The last round may have reused simulations; its checks were run in this call.
            learning = started[f"check {options.rounds}"] - started[f"train {options.rounds}"]
            checking = clock() - started[f"check {options.rounds}"]
            seconds = learning + checking * (1.0 + state.total / _CHECKED)
            console.print(f"{ONE_MORE_ROUND}, {about(max(seconds, 60.0))}")
        if state.phase == "simulate":
            show(f"{where}: {state.done:,} of {state.total:,} simulations")
        elif state.phase == "train":
            done = f"{state.total:,} simulations done, {state.failed:,} of them failed"
            console.print(f"{where}: {done}; learning the posterior")
            show(f"learning the posterior, {where}")
        else:
            show("checking the posterior" if state.phase == "check" else "drawing from the posterior")

    return progress


def _show(console: Console, result: Any, truth: Any = None) -> None:
    table = Table(title="parameters", title_justify="left")
    last = ("of prior", "true") if truth else ("90 %", "of prior")  # all of them would not fit into 80 columns
    for name in ("parameter", "prior", "nominal", "posterior", *last):
        named = name == "parameter"  # ranges wrap between numbers, names do not
        table.add_column(name, justify="left" if named else "right", no_wrap=named)
    for row in result.rows():
        share = f"{100 * row['share_of_prior_std']:.3g} %{'' if row['identified'] else ': little'}"
        between = f"{row['low']:.4g} to {row['high']:.4g}"
        cells = [
            escape(row["name"]),
            f"{row['prior_low']:.4g} to {row['prior_high']:.4g}",
            f"{row['nominal']:.4g}",
            f"{row['mean']:.4g} ± {row['std']:.2g}",
            *((share, f"{truth[row['name']]:.4g}") if truth else (between, share)),
        ]
        table.add_row(*cells)
    print_table(console, table)
    if any(not row["identified"] for row in result.rows()):
        console.print(
            "of prior: the posterior's standard deviation relative to the prior's; above half, the data says little",
            soft_wrap=True,
        )
    for text in (result.recordings, result.noise.get("text")):
        if text:
            console.print(escape(text), soft_wrap=True)
    console.print(result.error_text(), soft_wrap=True)
    if result.checks:
        color = "green" if result.checks["passed"] else "yellow" if result.checks["too_wide"] else "red"
        console.print(f"[{color}]{escape(result.checks['text'])}[/]", soft_wrap=True)
        for line in result.checks["lines"]:
            console.print(
                f"  [red]{escape(line)}[/]" if line.startswith("failed") else f"  {escape(line)}", soft_wrap=True
            )
        if not result.checks["passed"]:
            for text in result.doubts:
                console.print(f"[yellow]check:[/] {escape(text)}", soft_wrap=True)
            advice = "check units, signs and the order of columns, then see docs/inference.md, If a check fails"
            console.print(f"what to do: {advice}", soft_wrap=True)
    description = result.posterior.description
    if description["num_reused"]:
        console.print(f"{description['num_reused']:,} simulations were reused from an earlier run")
    elif description["num_foreign_parts"]:
        text = (
            "the simulations in the folder were made for other recordings or settings, or before the simulator "
            "changed: all were run again"
        )
        console.print(f"[yellow]{text}[/]", soft_wrap=True)
    if result.failed or not result.checks:  # else a line of the verdict says that none failed
        console.print(f"[yellow]{result.posterior.failures}[/]" if result.failed else result.posterior.failures)


def _loop_panel(result: Any) -> Panel:
    from metaroll.lab.inferring.sim2real import POLICIES

    bounds = {name: result.interval(name) for name in result.returns}
    better = result.solved and bounds["oracle"][0] > bounds["nominal"][1]
    lines = []
    for name, values in result.returns.items():
        low, high = bounds[name]
        between = better and name not in ("nominal", "oracle")
        share = f"  {100 * result.score(name):.0f} % of the way to the oracle" if between else ""
        lines.append(f"{name:10} {values.mean():8.4g} [{low:.4g}, {high:.4g}]  {POLICIES[name]}{share}")
    if not result.solved:
        lines.append("not even the oracle swings up: training was too short for a comparison (--epochs)")
    elif not better:
        lines.append("the oracle is not clearly better than nominal: there is no gap between them to measure shares of")
    return Panel("\n".join(lines), title="return on the robot", title_align="left", expand=False)


def _write_loop_page(result: Any) -> Path:
    import numpy as np

    from metaroll.lab.figures.charts import robustness_chart
    from metaroll.lab.figures.posterior_charts import policies_chart
    from metaroll.lab.inferring.sim2real import UNKNOWN, swing_up
    from metaroll.lab.report.inference_page import write_inference_page
    from metaroll.lab.report.page_parts import figure, figures, section
    from metaroll.lab.results.robustness import robustness_map
    from metaroll.training.session.agent import load

    names = list(result.returns)
    bounds = np.array([result.interval(name) for name in names])
    means = np.array([result.returns[name].mean() for name in names])
    intervals = {"mean": means, "low": bounds[:, 0], "high": bounds[:, 1]}
    charts = [figure(policies_chart(f"{len(result.returns['oracle'])} episodes each", names, intervals))]
    grid = {}
    for name in UNKNOWN[:2]:
        low, high = next((r["prior_low"], r["prior_high"]) for r in result.inference.rows() if r["name"] == name)
        grid[name] = np.linspace(low, high, 7).tolist()
    # All other parameters have their posterior means: where the robot is, according to the log.
    posterior_means = {row["name"]: row["mean"] for row in result.inference.rows()}
    here = functools.partial(swing_up, domain_param=posterior_means)
    for name in ("uniform", "posterior"):
        run = load(result.folder / "policies" / name)
        robustness = robustness_map(run.policy, here, grid, num_episodes=3, seed=0)
        chart = robustness_chart(robustness.to_dict())
        charts.append(figure(dataclasses.replace(chart, title=f"Robustness of {name}")))
    more = [section("On the robot", figures(charts))]
    return write_inference_page(result.inference, result.folder / PAGE, result.truth, more)
