"""The commands ``infer`` and ``sim2real``: from a log to a posterior, and the whole loop on a simulated robot."""

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
from metaroll.errors import UnknownNameError, UsageError, blame_input, command_text, named_as
from metaroll.inference.configs import EstimatorConfig
from metaroll.lab.cli.options import Output, parse, parse_command, renamed_flags, unset, with_config
from metaroll.lab.display.consoles import escape, show_line
from metaroll.lab.display.timing import about
from metaroll.lab.results.inference_result import ONE_MORE_ROUND, PAGE

if TYPE_CHECKING:
    from metaroll.inference.neural import InferenceProgress

__all__ = ["infer", "sim2real", "told_progress"]

_CHECKED = 1000
"""Simulations of the checks, more or less: they make 300 to 900, and 200 to 800 more."""


@dataclass(frozen=True, kw_only=True)
class _InferArguments:
    data: Annotated[str | None, unset("FOLDER", "none")] = None
    """Recorded rollouts: a folder of metaroll import-log, or of metaroll.save_rollouts."""
    out: Annotated[str | None, unset("DIR", "runs/infer-SIM-SEED")] = None
    """Folder of the posterior, the simulations and the page; simulations of the same recordings and settings that are
    there are used again, unless the simulator was changed."""
    param: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=LOW:HIGH")] = ()
    """A parameter that is not known, and its range; may be given several times. Without any: what the simulator usually
    varies, half to one and a half times of its value."""
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class _LoopArguments:
    out: str = "runs/sim2real"
    """Folder of the loop; an earlier one in it is kept, in a folder beside it."""
    output: Output = field(default_factory=Output)


def infer(arguments: Sequence[str]) -> None:
    """Infer the parameters of a simulator from recorded rollouts."""
    usage = "metaroll infer SIM --data FOLDER [options]"
    about = (
        "Recorded rollouts become a posterior over the parameters of SIM, with predictions of held-out rollouts and a "
        "page. Train on it: metaroll train ALGO SIM --tasks FOLDER. docs/inference.md"
    )
    kind = with_config(_InferArguments, "inference", InferenceOptions)
    renamed, called = renamed_flags(arguments, options_of(InferenceOptions))
    with named_as(called):
        try:
            names, given = parse_command(kind, renamed, usage, about, "the name of the simulator is missing")
        except UnknownNameError:
            _refuse_settings_of_networks(arguments)
            raise
        _infer(arguments, names, given, usage)


def _refuse_settings_of_networks(arguments: Sequence[str]) -> None:
    """Error if an option is one of the estimator, which the method sets here."""
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


def _infer(arguments: Sequence[str], names: Sequence[str], given: Any, usage: str) -> None:
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

    console, env = given.output.console(), EnvSource.of(names[0])
    with blame_input():
        options = InferenceOptions(**vars(given.inference))
        if given.data is None:
            raise UsageError(f"{usage}: --data FOLDER is missing, a folder of recorded rollouts (metaroll import-log)")
        folder = default_run_dir("infer", env, options.seed) if given.out is None else Path(given.out).expanduser()
        data = Path(given.data).expanduser()
        if data.is_file():
            made = command_text("import-log", data, "--mapping", "MAPPING", "--env", names[0], "--out", "FOLDER")
            raise UsageError(
                f"--data must be a folder of recorded rollouts, got the file {data}; a log becomes such a folder by "
                f"{made} (docs/robot_logs.md)"
            )
        rollouts = load_rollouts(data)
        prior = usual_prior(env, given.param)
        require_sbi()
        refuse_foreign(folder, INFER)
        _about(console, rollouts, prior, even_pieces(rollouts, options.segment_length, options.hold_out + 1).text)
        for text in doubts_about(env, rollouts):
            show_line(console, f"[yellow]check:[/] {escape(text)}")
        with _at_work(console) as shown:
            try:
                found = run(env, rollouts, prior, folder, options, progress=told_progress(console, shown, options))
            except KeyboardInterrupt as error:  # simulations that were made are kept
                error.resume_command = command_text("infer", *arguments)  # type: ignore[attr-defined]
                raise
        with take(folder, INFER):
            page = write_inference_page(found, folder / PAGE)
    _show(console, found)
    console.print(f"page {escape(str(page))}", soft_wrap=True)
    words = ["train", "ALGO", names[0], "--tasks", folder]
    if env.spec.max_episode_length is None:
        words += ["--max-steps", str(max(map(len, rollouts)))]
    when = "train on it" if found.trusted else "once the checks pass"
    when = when if found.checks else "nothing was checked (--no-checks); if it is right"
    console.print(f"{when}: {escape(command_text(*words))}", soft_wrap=True)
    if given.output.json:
        print_json({**found.to_dict(), "folder": str(folder), "page": str(page)})


def sim2real(arguments: Sequence[str]) -> None:
    """Close the loop on a robot that a simulator plays."""
    usage = "metaroll sim2real demo [options]"
    about = (
        "A simulator with hidden parameters plays the robot: logged rollouts, a posterior, a policy trained on it, "
        "beside nominal training, plain randomization and one that knows the truth. Some minutes on two cores."
    )
    rest = list(arguments)
    if rest and rest[0] == "demo":
        rest.pop(0)
    elif rest and not rest[0].startswith("-"):
        raise UsageError(f"{usage}: there is only the demo, got {rest[0]!r}")
    given = parse(with_config(_LoopArguments, "loop", LoopOptions), rest, "metaroll sim2real demo", about)
    from metaroll.lab.display.json_output import print_json
    from metaroll.lab.inferring.sim2real import close_the_loop

    console = given.output.console()
    with blame_input():
        result = close_the_loop(
            Path(given.out).expanduser(), LoopOptions(**vars(given.loop)), lambda text: console.print(escape(text))
        )
        page = _write_loop_page(result)
    _show(console, result.inference, result.truth)
    console.print(_loop_panel(result))
    console.print(f"page {escape(str(page))}", soft_wrap=True)
    if given.output.json:
        print_json({**result.to_dict(), "page": str(page)})


def _about(console: Console, rollouts: Sequence[Any], prior: Any, left_out: str) -> None:
    lengths = sorted({len(rollout) for rollout in rollouts})
    steps = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    count = "1 rollout" if len(rollouts) == 1 else f"{len(rollouts)} rollouts"
    show_line(console, f"{count} of {steps} steps; unknown: {escape(', '.join(prior.names))}")
    if left_out:
        show_line(console, f"[yellow]{escape(left_out)}[/]")


@contextlib.contextmanager
def _at_work(console: Console) -> Iterator[Callable[[str], None]]:
    """Shows, at a terminal, what is done at the moment, and since when; gives what changes the text."""
    columns = (SpinnerColumn("line"), TextColumn("{task.description}"), TimeElapsedColumn())
    # Warnings go where the user has sent them: above what is shown if that is the same terminal.
    live = {"transient": True, "redirect_stderr": sys.stderr.isatty(), "disable": not console.is_terminal}
    with Progress(*columns, console=console, **live) as shown:
        task = shown.add_task("looking at the simulator", total=None)
        told = ""

        def update(text: str) -> None:
            nonlocal told
            if text.partition(":")[0] != told:
                told = text.partition(":")[0]
                shown.reset(task)
            shown.update(task, description=text)

        yield update


def told_progress(
    console: Console,
    show: Callable[[str], None],
    options: InferenceOptions,
    clock: Callable[[], float] = time.perf_counter,
) -> Callable[[InferenceProgress], None]:
    """Shows progress; once the first round is learned, about how long all others will take."""
    begun: dict[str, float] = {}

    def progress(state: InferenceProgress) -> None:
        where = f"round {state.round_number} of {state.rounds}"
        begun.setdefault(f"{state.phase} {state.round_number}", clock())
        if state.phase == "simulate" and state.round_number == 2 and not state.done:
            learning = begun["simulate 2"] - begun["train 1"]
            simulating = begun["train 1"] - begun["simulate 1"]
            left = options.num_simulations / state.total - 1.0 + _CHECKED * options.checks / state.total
            seconds = simulating * left + learning * (state.rounds + 1.0)
            console.print(f"{about(max(seconds, 60.0))} to go")
        if state.phase == "simulate" and state.round_number > options.rounds and not state.done:
            # What the last round simulated may have been there already; what its checks did was not.
            learning = begun[f"check {options.rounds}"] - begun[f"train {options.rounds}"]
            checking = clock() - begun[f"check {options.rounds}"]
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


def _show(console: Console, found: Any, truth: Any = None) -> None:
    table = Table(title="parameters", title_justify="left")
    last = ("of prior", "true") if truth else ("90 %", "of prior")  # all would not fit into 80 columns
    for name in ("parameter", "prior", "nominal", "posterior", *last):
        named = name == "parameter"  # in narrow terminals numbers are broken, names stay whole
        table.add_column(name, justify="left" if named else "right", no_wrap=named)
    for row in found.rows():
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
    console.print(table)
    if any(not row["identified"] for row in found.rows()):
        show_line(console, "of prior: the posterior's deviation over the prior's; from half on, data says little")
    for text in (found.recordings, found.noise.get("text")):
        if text:
            show_line(console, escape(text))
    show_line(console, found.error_text())
    if found.checks:
        color = "green" if found.checks["passed"] else "yellow" if found.checks["too_wide"] else "red"
        show_line(console, f"[{color}]{escape(found.checks['text'])}[/]")
        for line in found.checks["lines"]:
            show_line(console, f"  [red]{escape(line)}[/]" if line.startswith("failed") else f"  {escape(line)}")
        if not found.checks["passed"]:
            for text in found.doubts:
                show_line(console, f"[yellow]check:[/] {escape(text)}")
            looked = "units, signs and the order of columns first, then docs/inference.md, What a failing check means"
            show_line(console, f"what that means, and what to do: {looked}")
    told = found.posterior.description
    if told["num_reused"]:
        console.print(f"{told['num_reused']:,} simulations were there already, and were used again")
    elif told["num_foreign_parts"]:
        text = (
            "the simulations that were in the folder are of other recordings or settings, or of a simulator that was "
            "changed since: all were made anew"
        )
        console.print(f"[yellow]{text}[/]", soft_wrap=True)
    if found.failed or not found.checks:  # else a line of the verdict says that none has
        console.print(f"[yellow]{found.posterior.failures}[/]" if found.failed else found.posterior.failures)


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
        lines.append("not even the oracle swings up: these trainings were too short to be compared (--epochs)")
    elif not better:
        lines.append("the oracle is not surely better than nominal: there is no way between them to have a share of")
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
    told = {"mean": means, "low": bounds[:, 0], "high": bounds[:, 1]}
    shown = [figure(policies_chart(f"{len(result.returns['oracle'])} episodes each", names, told))]
    grid = {}
    for name in UNKNOWN[:2]:
        low, high = next((r["prior_low"], r["prior_high"]) for r in result.inference.rows() if r["name"] == name)
        grid[name] = np.linspace(low, high, 7).tolist()
    # All other parameters are those that the log tells, where the robot is.
    told_by_log = {row["name"]: row["mean"] for row in result.inference.rows()}
    here = functools.partial(swing_up, domain_param=told_by_log)
    for name in ("uniform", "posterior"):
        run = load(result.folder / "policies" / name)
        found = robustness_map(run.policy, here, grid, num_episodes=3, seed=0)
        chart = robustness_chart(found.to_dict())
        shown.append(figure(dataclasses.replace(chart, title=f"Robustness of {name}")))
    more = [section("On the robot", figures(shown))]
    return write_inference_page(result.inference, result.folder / PAGE, result.truth, more)
