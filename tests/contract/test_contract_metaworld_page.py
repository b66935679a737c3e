"""What docs/metaworld.md says works when it is pasted."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import run_script

from metaroll import get_family
from metaroll.envs.metaworld.families import BENCHMARKS
from metaroll.lab.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "metaworld.md").read_text(encoding="utf-8")
TOLD = """
print(len(updates), len({update.task.env_name for update in updates}), env.spec.id)
first, _ = env.reset(seed=1)
print(first.shape, env.step(env.action_space.sample())[2:4])
"""
# Numbers that learn nothing in seconds, in the place of those of the page.
TINY = {
    r"sizes = dict\(\n.*?\n\)": (
        "sizes = dict(num_test_tasks=2, meta_batch_size=2, batch_size=16, embedding_batch_size=16, num_tasks_sample=1,"
        " embedding_mini_batch_size=16, num_initial_steps=20, num_steps_per_epoch=2, num_steps_prior=20,"
        " num_extra_rl_steps_posterior=20, max_path_length=10)"
    ),
    r"sample\(50\)": "sample(3)",
    r"\((300|200), .*?\)": "(8,)",
    r"n_epochs=500": "n_epochs=1",
    r"num_workers=2": "num_workers=1",
}


def blocks() -> list[str]:
    found = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(found) == 2
    return found


def test_benchmarks_and_options_in_commands_exist(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (values,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    Path("ml1.yaml").write_text(values, encoding="utf-8")
    (commands,) = re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)
    for command in commands.splitlines():
        program, *arguments = shlex.split(command)
        assert program == "metaroll"
        if arguments[0] == "train":  # refused for the number of workers alone, after all else has been looked at
            assert main([*arguments, "--num-workers", "100000"]) == 2
            assert "--num-workers must be at most" in capsys.readouterr().err
        else:
            assert main(arguments) == 2
            assert "is not a metaroll run directory" in capsys.readouterr().err


def test_names_of_the_page_are_those_of_the_families():
    named = set(re.findall(r"`((?:metaworld:)?M[LT]\d+(?:-ENV)?)`", PAGE.partition("## In Python")[0]))
    listed = {name.replace("reach-v3", "ENV") for name in BENCHMARKS}
    assert {name if ":" in name else f"metaworld:{name}" for name in named} == listed
    for name in BENCHMARKS:
        family = get_family(name)
        assert re.search(rf"\b{family.num_train_tasks}\b", PAGE) and re.search(rf"\b{family.num_test_tasks}\b", PAGE)


@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium.*")  # of Meta-World's observation spaces
def test_the_block_of_python_runs_and_draws_two_tasks_of_each_class(tmp_path):
    counts, step = run_script(tmp_path, blocks()[0] + TOLD).splitlines()
    assert counts.startswith("20 10 ")
    assert step == "(39,) (False, False)"


@pytest.mark.slow
def test_pearl_is_trained_on_a_benchmark(tmp_path):
    code = blocks()[1]
    for pattern, text in TINY.items():
        code, count = re.subn(pattern, text, code, flags=re.DOTALL)
        assert count, pattern
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "runs" / "pearl-ml1" / "metrics.jsonl").read_text().splitlines()]
    assert {row["task"] for row in rows if row["metric"] == "success_rate"} == {"task 0", "task 1"}
