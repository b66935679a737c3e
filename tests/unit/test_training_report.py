"""A report is one page that needs nothing beside it, says what the run left, and survives what is damaged."""

from __future__ import annotations

import json
import math
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from metaroll.lab.figures import plots
from metaroll.lab.figures.charts import (
    Chart,
    Curve,
    Field,
    LineStyle,
    axis_label,
    distinct_text,
    group_chart,
    learning_chart,
    line_styles,
    number_text,
    tasks_chart,
    tick_texts,
    training_curve,
)
from metaroll.lab.figures.plots import svg
from metaroll.lab.figures.posterior_charts import marginal_charts, trace_chart
from metaroll.lab.report.page_parts import figure
from metaroll.lab.report.page_parts import page as whole_page
from metaroll.lab.report.report import write_report
from metaroll.lab.results.robustness import RobustnessMap
from metaroll.lab.runs.report_facts import newest_evaluation
from metaroll.training.store.files import write_json
from metaroll.training.store.metrics_log import MetricsLog

VOID = {"meta", "link", "img", "br", "input", "line", "rect", "circle", "path", "polyline", "polygon"}


class Page(HTMLParser):
    """The tags, attributes and words of a page; refuses tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


NO_ADAPTATION = {"return": -8.5, "advantage": 5.0, "advantage_ci_low": 4.0, "advantage_ci_high": 6.0}


def page_of(folder: Path, **options: Any) -> Page:
    return Page(write_report(folder, **options).read_text(encoding="utf-8"))


def write_pearl(folder: Path) -> None:
    log = MetricsLog(folder)
    for epoch in range(3):
        values: dict[str, Any] = {}
        for name, value in (("return_before", -9.0), ("return_after", -9.0 + 2 * epoch), ("gain", 2.0 * epoch)):
            values |= {name: value, f"{name}_ci_low": value - 1, f"{name}_ci_high": value + 1}
        values |= {f"return_episode_{i}": -9.0 + i for i in (1, 2, 3)}
        log.append(epoch, 1000 * (epoch + 1), "train", {"kl": 0.1 * epoch})
        log.append(epoch, 1000 * (epoch + 1), "MetaTest", values)
        for task, after in (("task 0", -3.0), ("<task> & 1", -11.0)):
            log.append(epoch, 1000 * (epoch + 1), "MetaTest", {"return_before": -9.0, "return_after": after}, task)
    log.flush()
    config = {"metaroll_run": 1, "algo": "pearl", "env": "point-robot", "run": {"seed": 3, "sizes": [8, 8]}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


def test_a_run_that_is_training_has_a_page_from_its_metrics_alone(tmp_path):
    write_pearl(tmp_path)
    page = page_of(tmp_path, head={"epoch": "3 of 10 (running)"})
    assert "pearl on point-robot" in page.text and "3 of 10 (running)" in page.text
    # The newest evaluation: -5 after adaptation, with its interval.
    assert "return after adaptation -5.00 [-6.00, -4.00]" in page.text
    assert "task 0 -9.00 -3.00 6.00" in page.text and "first-to-last-episode difference 4.00 [3.00, 5.00]" in page.text
    assert (
        "first-to-last-episode difference, test tasks 4.00 [3.00, 5.00]" in page.text
    )  # which this older run calls gain
    assert "<task> & 1 -9.00 -11.0 -2.00" in page.text  # escaped in the file, as it is on the page
    assert page.count("figure") == 3  # learning curve, adaptation curve, kl


def test_nothing_is_fetched_and_nothing_runs(tmp_path):
    write_pearl(tmp_path)
    path = write_report(tmp_path, pictures=[("step 0", np.zeros((4, 6, 3), np.uint8))])
    page = Page(path.read_text(encoding="utf-8"))
    assert page.count("script") == 0
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), tag
        for name in ("src", "href", "xlink:href", "srcset", "data"):  # "#": another part of the page
            assert str(attributes.get(name) or "data:").startswith(("data:", "#")), (tag, attributes)
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"url\((?!#)", text) and "@import" not in text and text.count("<style") == 1
    assert ("meta", "width=device-width, initial-scale=1") in [(t, a.get("content")) for t, a in page.tags]
    (image,) = [attributes for tag, attributes in page.tags if tag == "img"]
    assert str(image["src"]).startswith("data:image/png;base64,") and image["alt"] == "step 0"


def test_the_newest_evaluation_is_shown_with_its_study(tmp_path):
    write_pearl(tmp_path)
    curve = {"episode": [1, 2, 3], "mean": [-9, -7, -4], "low": [-10, -8, None], "high": [-8, -6, None]}
    common = {"return_before": -9.0, "adaptation_curve": {**curve, "num_exploration": 2}, "n_test_tasks": 2}
    write_json(tmp_path / "summary.json", {**common, "return_after": -4.0, "epochs": 3})
    study = {
        "k_shot_curve": {"shots": [0, 1, 2], "mean": [-9, -7, -3.5], "low": [-9, -8, -4], "high": [-9, -6, -3]},
        "baselines": {"no adaptation": NO_ADAPTATION, "task oracle": {"return": -1.0}},
        "per_task": [{"name": "task 0", "return_before": -9.0, "return_after": -3.0, "no_adaptation": -7.0}],
    }
    numbers = {"return_after": -3.5, "epoch": 3, "success_rate": 0.25, "provenance": {"benchmark": "Meta-World"}}
    write_json(tmp_path / "evaluation.json", {**common, **study, **numbers})
    page = page_of(tmp_path)
    assert "benchmark (environment) Meta-World" in page.text
    assert "return after adaptation -3.50" in page.text and "success 25 %" in page.text
    assert "no adaptation" in page.text and "oracle (has access to the task)" in page.text
    assert "task 0 -9.00 -3.00 -7.00 4.00 no" in page.text  # against no adaptation, not the first episode
    assert "worse: where it is below 0 by more than 1 % of the standard deviation of returns" in page.text
    assert "adaptation gain (paired) 5.00 [4.00, 6.00]" in page.text
    assert "no adaptation" in page.text and page.text.index("adaptation gain") < page.text.index("return after adapt")
    log = MetricsLog(tmp_path)
    log.append(3, 4000, "train", {"kl": 0.1})
    log.flush()
    write_json(tmp_path / "summary.json", {**common, "return_after": -2.25, "epochs": 4})
    assert "return after adaptation -2.25" in page_of(tmp_path).text  # trained on after that evaluation


def test_the_page_begins_with_the_verdict_and_tasks_have_their_values(tmp_path):
    write_pearl(tmp_path)
    verdict = {"text": "adapts: +5 [4, 6]; fails on <1> task", "adapts": True, "gain": 5.0, "gain_ci_low": 4.0}
    verdict |= {"gain_ci_high": 6.0, "oracle_share": 0.723, "oracle_share_ci_low": 0.6, "oracle_share_ci_high": 0.81}
    rows = [
        {
            "name": f"task {i}",
            "task": f"velocity={i}.5",
            "return_before": -9.0,
            "return_after": -3.0 - i,
            "gain": 2.0 - i,
        }
        for i in range(3)
    ]
    values = {"return_before": -9.0, "return_after": -4.0, "epoch": 3, "verdict": verdict}
    write_json(tmp_path / "evaluation.json", {**values, "normalized_score": 0.4, "per_task": rows})
    page = page_of(tmp_path)
    assert ("p", {"class": "verdict adapts"}) in page.tags
    sentence = page.text.index("adapts: +5 [4, 6]; fails on <1> task")
    assert (
        sentence
        < page.text.index("adaptation gain (paired) 5.00 [4.00, 6.00]")
        < page.text.index("return after adaptation")
    )
    assert "of the way to the oracle 72.3 % [60 %, 81 %]" in page.text and "score between" not in page.text
    assert "task 1: velocity=1.5 -9.00 -4.00" in page.text
    assert "Return in each held-out task" in page.text and "velocity" in page.words  # the chart's axis
    del values["verdict"]
    write_json(tmp_path / "evaluation.json", {**values, "normalized_score": 0.4, "per_task": rows})
    page = page_of(tmp_path)
    assert not any(name == "verdict" for _, a in page.tags for name in (a.get("class") or "").split())
    assert "score between floor and oracle 0.400" in page.text


@pytest.mark.usefixtures("empty_charts")
@pytest.mark.parametrize("name", ["summary.json", "evaluation.json"])
def test_numbers_of_two_evaluations_are_never_mixed(tmp_path, name):
    write_pearl(tmp_path)  # logs intervals, tasks and episodes of another evaluation, after the same epoch
    log = MetricsLog(tmp_path)
    log.append(2, 3000, "MetaTest", {"share_worse": 0.5})
    log.flush()
    stored = {"return_before": -19.0, "return_after": -2.5, "epochs": 3, "epoch": 3}
    write_json(tmp_path / name, stored)
    text = page_of(tmp_path).text
    assert "return after adaptation -2.50 return in the first episode -19.0 Curves" in text  # without intervals
    for logged in ("[-10.0, -8.0]", "first-to-last", "made worse", "task 0", "Adapting to a new task"):
        assert logged not in text
    bounds = {"return_before_interval": [-21.0, -17.0], "change": 16.5}
    write_json(tmp_path / name, {**stored, **bounds})
    text = page_of(tmp_path).text
    assert "return in the first episode -19.0 [-21.0, -17.0] first-to-last-episode difference 16.5 Does it" in text
    returns = [[-1.0, -2.0], [-3.0, -5.0]]
    write_json(tmp_path / name, {"return_mean": -2.75, "epochs": 3, "epoch": 3, "returns": returns})
    assert "task 0 -1.50 -2.00 -1.00" in page_of(tmp_path).text  # of the stored returns


@pytest.mark.usefixtures("empty_charts")
def test_the_page_says_whether_it_adapts_or_averages(tmp_path):
    log = MetricsLog(tmp_path)
    for epoch in range(12):
        told = {"return": -2.0, "return_before": -3.0, "return_after": -2.0, "gain": 1.0, "share_worse": 0.25}
        log.append(epoch, epoch + 1, "train", {**told, "inner_kl": 3e-8, "gradient_cosine": 0.1 * (epoch >= 2)})
        if epoch == 3:
            log.append(
                epoch,
                epoch + 1,
                "MetaTest",
                {"return_before": -9.0, "return_after": -7.0, "change": 2.0, "share_worse": 0.5},
            )
    log.flush()
    page = page_of(tmp_path)
    assert "Does it adapt, or average?" in page.text
    for said in (
        "KL of the inner step 3e-08 mean of the last 10 epochs How far one inner step moves",
        "cosine between task gradients 0.1 mean of the last 10 epochs",
        "gain, training tasks 1.00 ",
        "training tasks made worse 25 %",
        "first-to-last-episode difference, test tasks 2.00 Return after adaptation minus the return in the first",
        "different episodes, so it is not the gain from adaptation",
        "test tasks made worse 50 % Share of tasks with a lower return after adaptation than before",
        "return after adaptation -7.00",  # not that of later training
    ):
        assert said in page.text, said
    assert "gain, test tasks" not in page.text
    verdict = {"text": "adapts", "adapts": True, "gain": 5.0, "gain_ci_low": 4.0, "gain_ci_high": 6.0}
    values = {"return_before": -9.0, "return_after": -4.0, "epoch": 12, "verdict": verdict, "share_worse": 0.125}
    write_json(tmp_path / "evaluation.json", {**values, "baselines": {"no adaptation": NO_ADAPTATION}})
    text = page_of(tmp_path).text
    assert (
        "gain, held-out tasks 5.00 [4.00, 6.00] Return after adaptation minus the return without, in the same test"
        in text
    )
    assert "held-out tasks made worse 12.5 %" in text
    failing = [{"index": i, "task": f"task {i}"} for i in range(19)]
    write_json(
        tmp_path / "evaluation.json", {**values, "verdict": {**verdict, "n_tasks": 60, "failing_tasks": failing}}
    )
    text = page_of(tmp_path).text
    assert (
        "held-out tasks made worse 31.7 % Share of tasks with a lower return after adaptation than without, by" in text
    )
    assert "1 % of the standard deviation of returns, in the same test episodes" in text
    assert text.index("Does it adapt, or average?") < text.index("Losses and other numbers")


@pytest.mark.usefixtures("empty_charts")
def test_an_evaluation_that_training_has_overtaken_is_not_shown_as_the_newest(tmp_path):
    """The run was trained on after ``metaroll evaluate``, and interrupted before its next summary."""
    write_pearl(tmp_path)  # evaluated after 3 epochs
    write_json(tmp_path / "evaluation.json", {"return_before": -9.0, "return_after": -1.25, "epoch": 2})
    text = page_of(tmp_path).text
    assert "return after adaptation -5.00 [-6.00, -4.00]" in text and "-1.25" not in text
    assert re.search("after 2 epochs is left out: training has evaluated after 3. .metaroll evaluate. makes a", text)
    write_json(tmp_path / "evaluation.json", {"return_before": -9.0, "return_after": -1.25, "epoch": 6})
    write_json(tmp_path / "summary.json", {"return_before": -9.0, "return_after": -1.5, "epochs": 6, "seconds": 777.5})
    text = page_of(tmp_path).text  # continued from an earlier snapshot
    assert "return after adaptation -5.00 [-6.00, -4.00]" in text and not any(
        old in text for old in ("-1.25", "-1.50", "777")
    )
    why = "stored evaluation after 6 epochs is left out: training has continued from an earlier snapshot"
    assert f"summary.json: the {why}" in text and f"evaluation.json: the {why}" in text
    write_json(tmp_path / "summary.json", {"return_before": -9.0, "return_after": -1.5, "epochs": 3})
    text = page_of(tmp_path).text  # the other one counts
    assert f"evaluation.json: the {why}" in text and f"summary.json: the {why}" not in text and "-1.50" in text
    assert "makes a new one" not in text
    assert newest_evaluation({"epochs": 3, "a": 1}, {"epoch": 2}) == (3, {"epochs": 3, "a": 1})
    assert newest_evaluation({"epochs": 3}, {"epoch": 3, "b": 1}) == (3, {"epoch": 3, "b": 1})


def test_a_policy_that_does_not_adapt_has_no_adaptation_curve_but_its_robustness_map(tmp_path):
    log = MetricsLog(tmp_path)
    for epoch in range(2):
        numbers = {"return_mean": 1.0 + epoch, "return_mean_ci_low": 0.5, "return_mean_ci_high": 2.5}
        log.append(epoch, 10 * epoch, "Evaluation", numbers)
    log.flush()
    returns = [[1.0, 2.0], [3.0, 5.0]]
    summary = {"algo": "ppo", "env": "qq-su", "epochs": 2, "return_mean": 2.0, "return_interval": [1.5, 2.5]}
    write_json(tmp_path / "summary.json", {**summary, "returns": returns})
    for grid in ({"mass": np.array([0.5, 1.0])}, {"mass": np.array([0.5, 1.0]), "length": np.array([1.0, 2.0, 3.0])}):
        values = np.arange(2.0 * (3 if len(grid) == 2 else 1) * 4).reshape(*(len(v) for v in grid.values()), 4)
        found = RobustnessMap(grid, values, nominal={"mass": 0.7}, training_range={"mass": (0.6, 0.9)})
        found.write(tmp_path / f"robustness-{'-'.join(grid)}")
    page = page_of(tmp_path)
    assert "mean return 2.00 [1.50, 2.50]" in page.text
    assert "Adapting" not in page.text
    assert "Return over mass and length" in page.text and "range in training" in page.text
    assert page.count("image") == 2  # the map's fields, and what their colors are
    assert "9.5" in page.words
    assert "task 1 4.00 3.00 5.00" in page.text


def test_damaged_files_are_named_and_the_rest_is_shown(tmp_path):
    write_pearl(tmp_path)
    (tmp_path / "summary.json").write_text('{"epochs": ')
    (tmp_path / "config.yaml").write_text("a: [")
    write_json(tmp_path / "evaluation.json", {"epoch": 3, "return_after": -1.0, "per_task": 7, "k_shot_curve": [1]})
    page = page_of(tmp_path, notes=["There are no pictures: <why>"])
    for said in ("summary.json is left out", "config.yaml is left out", "the k-shot curve is left out"):
        assert said in page.text
    assert "the table of tasks is left out" in page.text and "There are no pictures: <why>" in page.text
    assert "return after adaptation -1.00" in page.text
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    assert "metrics.jsonl: line 1: it is damaged" in page_of(tmp_path).text


@pytest.mark.parametrize(
    ("names", "run", "said"),
    [
        ("metrics.jsonl config.yaml", {"snapshot_mode": "last"}, ["There is no snapshot"]),
        ("metrics.jsonl config.yaml snapshots/000003", {"snapshot_mode": "last"}, []),
        ("metrics.jsonl config.yaml", {"snapshot_mode": "none"}, []),
        ("metrics.jsonl", {}, []),  # of a script
        ("config.yaml snapshots/000003", {"snapshot_mode": "last"}, ["metrics.jsonl is missing"]),
        ("config.yaml", {"snapshot_mode": "last"}, []),  # stopped before its first epoch is done
        ("summary.json", {}, ["metrics.jsonl is missing"]),
        (
            "config.yaml summary.json",
            {"snapshot_mode": "last"},
            ["metrics.jsonl is missing", "There is no snapshot"],
        ),
    ],
)
@pytest.mark.usefixtures("empty_charts")
def test_what_a_run_must_have_had_and_has_no_more_is_named(tmp_path, names, run, said):
    write_pearl(tmp_path)
    write_json(tmp_path / "summary.json", {"epochs": 3})
    config = {"metaroll_run": 1, "algo": "pearl", "env": "point-robot", "run": run}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "snapshots" / "000003").mkdir(parents=True)
    for name in ("metrics.jsonl", "config.yaml", "summary.json"):
        if name not in names:
            (tmp_path / name).unlink()
    if "snapshots" not in names:
        shutil.rmtree(tmp_path / "snapshots")
    text = write_report(tmp_path).read_text(encoding="utf-8")
    notes = re.findall('<p class="note">(.*?)</p>', text)
    assert len(notes) == len(said) and all(map(str.startswith, notes, said))


def test_numbers_that_are_not_finite_are_gaps(tmp_path):
    log = MetricsLog(tmp_path)
    for epoch, value in enumerate((1.0, math.nan, math.inf, 2.0)):
        log.append(epoch, epoch, "Evaluation", {"return_mean": value})
    log.flush()
    text = write_report(tmp_path).read_text(encoding="utf-8")
    Page(text)
    assert not re.search(r"\b(nan|inf)\b", text.lower())


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no run: there is no metrics\.jsonl, no config\.yaml"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("empty_charts")
@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("notes.md", ValueError),
        ("notes", ValueError),
        ("folder", ValueError),
        ("folder.html", IsADirectoryError),
        ("", ValueError),
        (3, TypeError),
    ],
)
def test_only_pages_are_replaced(tmp_path, path, error):
    write_pearl(tmp_path)
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.md").write_text("mine")
    with pytest.raises(error, match=r"^path must .*(got|is a folder)"):
        write_report(tmp_path, str(tmp_path / path) if path and isinstance(path, str) else path)
    assert (tmp_path / "notes.md").read_text() == "mine" and not (tmp_path / "notes").exists()
    pages = [write_report(tmp_path, tmp_path / "page.HTM"), write_report(tmp_path)]
    texts = [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "", page.read_text()) for page in pages]
    assert texts[0] == texts[1]  # but for the time of writing


@pytest.mark.usefixtures("empty_charts")
def test_nothing_but_the_page_is_written(tmp_path):
    write_pearl(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_report(tmp_path, tmp_path / "elsewhere" / "page.html")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["page.html"]


# ---------------------------------------------------------------------------------------------------------- the charts
def chart_of(*curves: Curve, **more: Any) -> Chart:
    return Chart("name", "", "x", "y", curves, **more)


def test_points_of_a_chart_lie_where_their_values_are():
    curve = Curve("x", np.array([0.0, 1.0, 2.0]), np.array([0.0, 5.0, 10.0]), kind="points")
    page = Page(svg(chart_of(curve))[0])
    dots = [a for t, a in page.tags if t == "use" and curve.color in str(a.get("style"))][:3]
    xs, ys = ([float(str(dot[name])) for dot in dots] for name in ("x", "y"))
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2) and xs[0] < xs[1]
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2) and ys[0] > ys[1]  # upwards


def test_a_long_curve_leaves_a_page_small():
    noise = np.random.default_rng(0).normal(size=50_000)
    assert len(svg(chart_of(Curve("", np.arange(50_000.0), noise)))[0]) < 50_000


def test_the_same_charts_have_the_same_bytes_and_ids_of_their_own_in_a_page():
    curve = Curve("a", np.array([0.0, 1.0, 2.0]), np.array([0.0, 5.0, 10.0]), kind="points")
    text = whole_page("t", "", [figure(chart_of(curve)), figure(chart_of(curve))])
    assert text == whole_page("t", "", [figure(chart_of(curve)), figure(chart_of(curve))])
    charts = re.findall('<svg class="chart".*?</svg>', text)
    ids, meant = (
        [set(re.findall(pattern, chart)) for chart in charts] for pattern in (r' id="(.*?)"', r'#(chart.*?)[")]')
    )
    assert len(charts) == 2 and ids == meant and not ids[0] & ids[1] and all(ids)


def test_names_are_texts_of_a_page_whatever_is_in_them():
    name = "a <b> & $x_1^{2$ \N{SNOWMAN} \N{CJK UNIFIED IDEOGRAPH-6A5F}"
    chart = Chart(name, name, name, name, [Curve(name, np.arange(2.0), np.arange(2.0))])
    page = Page(figure(chart))
    assert page.words.count(name) == 5  # title, explanation, both axes, legend
    assert ("svg", name) in [(tag, attributes.get("aria-label")) for tag, attributes in page.tags]


@pytest.mark.parametrize("values", [[], [3.0], [2.0, 2.0], [math.nan, math.nan], [1e-12, 1e12], [5e8, 5e8 + 1e-6]])
def test_charts_of_awkward_numbers(values):
    y = np.array(values)
    curve = Curve("x", np.arange(float(len(y))), y, y - 1, y + 1)
    Page(svg(chart_of(curve, levels={"level": math.nan}))[0])
    mean = (y if y.size else np.zeros(1))[:, None]
    axes = {"x": np.arange(float(len(mean))), "y": np.zeros(1)}
    Page(svg(Field("<name>", "", "return", axes, mean, mean - 1, mean + 1, "95 %"))[0])


def test_a_legend_names_curves_before_lines():
    curve = Curve("a <curve>", np.arange(3.0), np.arange(3.0), kind="points")
    words = Page(svg(chart_of(curve, levels={"oracle": 1.0}, span=("seen", 0.0, 1.0)))[0]).words
    assert words[-3:] == ["a <curve>", "oracle", "seen"]
    assert "" not in Page(svg(chart_of(Curve("", np.arange(3.0), np.arange(3.0))))[0]).words


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([7500.2, 7500.4, 7500.6], ["7500.2", "7500.4", "7500.6"]),
        ([0.0, 20_000.0, 40_000.0], ["0", "20k", "40k"]),
        ([10_000.0, 10_020.0, 10_040.0], ["10.00k", "10.02k", "10.04k"]),
        ([10_000.0, 10_000.5, 10_001.0], ["10000.0", "10000.5", "10001.0"]),
        ([0.0, 500_000.0, 1_000_000.0], ["0", "0.5M", "1.0M"]),
        ([-0.004, -0.002, 0.0], ["-0.004", "-0.002", "0"]),
        ([0.0, 1.0, 2.0], ["0", "1", "2"]),
        ([0.0, 1e-9, 2e-9], ["0", "1e-09", "2e-09"]),
        ([0.1, 0.10000001], ["0.1", "0.10000001"]),
        ([3.0], ["3"]),
        ([], []),
    ],
)
def test_ticks_tell_each_number_from_the_next(values, texts):
    assert tick_texts(values) == texts


def test_cells_whose_values_are_near_one_another_are_told_apart():
    nothing = np.full((4, 1), np.nan)
    x = np.array([1.2034721, 1.2016118, 1.1997361, 1.1943907])[::-1]
    page = Page(svg(Field("f", "", "share", {"x": x, "y": np.zeros(1)}, np.ones((4, 1)), nothing, nothing, ""))[0])
    ticks = [word for word in page.words if word.startswith(("1.19", "1.20"))]
    assert len(ticks) >= 4 and ticks == sorted(set(ticks))


def test_curves_that_are_equal_are_all_seen():
    time, value = np.arange(3.0), np.arange(3.0)
    chart = trace_chart("angle", "", time, value, np.stack([value, value]), {"nominal": value})
    text = svg(chart)[0]
    drawn = [re.search(rf"stroke: {curve.color};[^\"]*stroke-width: ([\d.]+)", text) for curve in chart.curves]
    widths = [float(found[1]) for found in drawn if found]
    assert len(widths) == 3 and widths == sorted(widths, reverse=True) and len(set(widths)) == 3
    assert {"observed", "nominal"} <= set(Page(text).words)


@pytest.mark.usefixtures("empty_charts")
def test_tasks_and_options_have_one_name_each(tmp_path, monkeypatch):
    write_pearl(tmp_path)
    charts = []
    monkeypatch.setattr(plots, "_write", lambda chart, path: charts.append(chart) or path)
    for overlaps, kind in ((None, "test"), ([], "held-out"), ([[0, 0]], "training")):  # before anything is evaluated
        if overlaps is not None:
            write_json(tmp_path / "task_split.json", {"num_train": 2, "num_test": 2, "overlaps": overlaps})
        text = page_of(tmp_path).text
        assert f"mean over 2 {kind} tasks" in text and f"Mean returns in each {kind} task" in text
        assert f"first-to-last-episode difference, {kind} tasks 4.00" in text
        plots.plot_learning_curve(tmp_path)
        assert charts[-1].explanation.startswith(f"mean over 2 {kind} tasks")
    (tmp_path / "task_split.json").write_text("{")
    plots.plot_learning_curve(tmp_path)
    assert charts[-1].explanation.startswith("mean over 2 test tasks")
    (tmp_path / "task_split.json").unlink()
    study = {"shots": [0, 1], "mean": [-9.0, -4.0], "low": [-10.0, -5.0], "high": [-8.0, -3.0]}
    values = {"return_before": -9.0, "return_after": -4.0, "epoch": 3, "n_test_tasks": 2, "k_shot_curve": study}
    values["protocol"] = {"n_exploration_traj": 7, "n_test_rollouts": 6, "deterministic": True}
    for kind in ("held-out", "training"):
        write_json(tmp_path / "evaluation.json", {**values, "tested_on": kind})
        text = page_of(tmp_path).text
        assert text.count(f"mean over 2 {kind} tasks") >= 2 and "mean over 2 test tasks" not in text
    assert "evaluation: num_adaptation_episodes 7 evaluation: num_episodes 6 evaluation: deterministic" in text
    assert "n_exploration_traj" not in text


def test_a_learning_curve_shows_what_training_returned_and_groups_do_too(tmp_path):
    rows = [{"phase": "train", "metric": "return_after", "env_steps": i, "value": -i, "task": None} for i in range(5)]
    rows += [{"phase": "MetaTest", "metric": "return_after", "env_steps": 5, "value": -1.0, "task": None}]
    first = learning_chart(rows, "MetaTest").curves[0]
    assert (first.label, first.kind, first.x.tolist()) == ("in training tasks, with noise", "thin", [0, 1, 2, 3, 4])
    (alone,) = learning_chart(rows[:5], None).curves
    assert (alone.kind, alone.x.tolist()) == ("line", [0, 1, 2, 3, 4]) and alone.color != first.color
    assert training_curve(rows).shape == (5, 2) and training_curve(rows[-1:]).shape == (0, 2)
    curves, trained = {"a": [np.array([[5.0, -1.0]])]}, {"a": [training_curve(rows)]}
    chart = group_chart(curves, training=trained)
    assert [(curve.kind, len(curve.x)) for curve in chart.curves] == [("thin", 5), ("line", 1)]
    assert chart.curves[0].color != chart.curves[1].color and "pale: in training" in chart.explanation
    assert "pale" not in group_chart(curves, training={"a": [training_curve([])]}).explanation


def test_reference_lines_look_the_same_in_every_chart():
    oracle, mismatched = "oracle (has access to the task)", "mismatched context (another task's data)"
    alone, among = line_styles([oracle]), line_styles(["a", "no adaptation", oracle, mismatched, "b"])
    assert alone[oracle] == among[oracle]
    assert len(set(among.values())) == 5 and len({style.color for style in among.values()}) == 4
    # Those of an agent that does not adapt lie on one another: dots of one stand in the gaps of the other.
    one, two = among["no adaptation"], among[mismatched]
    assert sum(one.dashes) == sum(two.dashes) == 18

    def is_drawn(style: LineStyle, place: int) -> bool:
        ends = np.cumsum(style.dashes)
        return int(np.searchsorted(ends, (place + style.start) % ends[-1], side="right")) % 2 == 0

    both = [is_drawn(one, place) and is_drawn(two, place) for place in range(18)]
    assert not any(both) and sum(is_drawn(two, place) for place in range(18)) == 4


def test_axes_have_labels_and_known_units():
    page = Page(svg(chart_of(Curve("", np.arange(3.0), np.arange(3.0))))[0])
    assert {"x", "y"} <= set(page.words)
    assert any("rotate(-90" in str(a.get("transform")) for t, a in page.tags if t == "text")
    assert [axis_label(name) for name in ("pole_mass", "gravity_const", "body_mass:torso", "my_mass")] == [
        *("pole_mass (kg)", "gravity_const (m/s²)", "body_mass:torso (kg)", "my_mass")
    ]
    grid = {"pole_mass": np.array([0.1, 0.2]), "pole_length": np.array([1.0, 2.0])}
    values = np.arange(4.0).reshape(2, 2)
    picture, explanation = svg(Field("f", "mean", "return", grid, values, values, values, "95 %"))
    assert {"pole_mass (kg)", "pole_length (m)", "return", "3", "[3, 3]"} <= set(Page(picture).words)
    assert explanation == "mean [95 %]"


def test_values_that_differ_look_different():
    near = distinct_text(np.array([7500.21, 7500.49]), number_text)
    assert (near(7500.21), near(7500.49), near(math.nan)) == ("7500.21", "7500.49", "n/a")
    assert distinct_text(np.array([7000.0, 7500.0]), number_text)(7500.2) == "7500"
    for values in ([3.0, 3.0], [], [0.0, 0.0], [math.nan]):
        assert distinct_text(values, number_text) is number_text


def test_tasks_of_one_number_stand_over_it_and_others_by_rank():
    rows = [{"task": f"mass={m}", "return_after": m, "gain": -m, "no_adaptation": 2 * m} for m in (3.0, 1.0, 2.0)]
    chart = tasks_chart({"per_task": rows})
    assert chart is not None and chart.x_label == "mass"
    assert [curve.label for curve in chart.curves] == ["no adaptation", "adapted"]
    assert [curve.x.tolist() for curve in chart.curves] == [[1.0, 2.0, 3.0]] * 2
    assert chart.curves[1].y.tolist() == [1.0, 2.0, 3.0]
    goals = [{**row, "task": f"goal=({row['return_after']}, 0)"} for row in rows]
    ranked = tasks_chart({"per_task": goals})
    assert ranked is not None and ranked.curves[1].y.tolist() == [3.0, 2.0, 1.0]  # from the least to the most gain
    assert ranked.curves[1].x.tolist() == [1.0, 2.0, 3.0]
    assert tasks_chart({"per_task": rows[:1]}) is None and tasks_chart({}) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-16.953, "-17"),
        (12345.0, "12.3k"),
        (-1.25, "-1.25"),
        (1234.5678, "1235"),
        (120000.0, "120k"),
        (2.5e6, "2.5M"),
        (math.nan, "n/a"),
    ],
)
def test_numbers_in_few_characters(value, text):
    assert number_text(value) == text


def test_an_infinity_of_json_is_one(tmp_path):
    write_json(tmp_path / "summary.json", {"return_mean": -math.inf, "epochs": 1})
    assert json.loads((tmp_path / "summary.json").read_text())["return_mean"] == "-Infinity"
    assert "mean return -inf" in page_of(tmp_path).text


def test_a_narrow_posterior_has_bins_of_its_own():
    draws = np.random.default_rng(0).normal([0.898, 1.0], [0.002, 0.15], (2000, 2))
    bounds = {"l": (0.5, 1.5), "m": (0.5, 1.5)}
    for chart in marginal_charts(["l", "m"], draws, bounds, {}):
        x, y = chart.curves[0].x, chart.curves[0].y
        assert (x[0], x[-1], y[0], y[-1]) == (0.5, 1.5, 0.0, 0.0)
        _, low, high = chart.span
        steps = np.diff(x) * y[:-1]
        inside = (x[:-1] >= low - 0.03 * (high - low)) & (x[1:] <= high + 0.03 * (high - low))
        assert steps.sum() == pytest.approx(1.0) and steps[inside].sum() > 0.85
