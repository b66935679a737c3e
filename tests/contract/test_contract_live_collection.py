"""What docs/live_collection.md says works when it is pasted."""

from __future__ import annotations

from pathlib import Path

from doc_pages import page, python_blocks, run_script


def test_the_blocks_of_python_run(tmp_path: Path) -> None:
    live, run, failures, reduced = python_blocks(page("live_collection.md"))
    told = run_script(tmp_path, live).splitlines()
    assert len(told) == 7 and told[0] == "8 pieces, 64 steps, 0 rollouts ended"
    assert told[3].endswith("8 rollouts ended") and told[5].startswith("(8, 2)")
    assert told[6] == "320 (256, 2) (256,)"
    seen = run_script(tmp_path, run).split()
    assert seen == ["1024", "1024"]
    first, *dropped = run_script(tmp_path, failures).splitlines()
    assert dropped and first == f"{20 - len(dropped)} of 20 rollouts"
    assert all(line.endswith("error True") for line in dropped)
    assert run_script(tmp_path, reduced).split(") ")[1].strip() == "True"
