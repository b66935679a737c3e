"""What docs/meta_policy_search.md says works when it is pasted."""

from __future__ import annotations

from pathlib import Path

from doc_pages import page, python_blocks, run_script


def test_the_blocks_of_python_run(tmp_path: Path) -> None:
    samplers, executors, columns = python_blocks(page("meta_policy_search.md"))
    told = run_script(tmp_path, f"{samplers}\nprint('--')\n{executors}\nprint('--')\n{columns}")
    first, second, third = (part.strip().splitlines() for part in told.split("--"))
    assert "'Step_0-PolicyExecTime'" in first[0] and "'Step_0-EnvExecTime'" in first[0]
    assert len(first) == 5 and all("'adj_avg_rewards'" in line for line in first[1:4])
    assert second[-1].startswith("True [") and second[-1].endswith("True False")
    assert third[-2].endswith("(3,) 3") and third[-1] == "(15, 20) (15, 20) (15, 20)"
