"""The examples of docs/testing.md run when pasted; the page lists every kit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_pages import page, python_blocks, run_script

from metaroll import testing
from metaroll.training.run import rollout_source
from worker_pools import LentPool

PAGE = page("testing.md")


@pytest.mark.usefixtures("shared_pools")
def test_the_page_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler starts workers of its own, whose end its kit checks; learners train in shared ones."""
    monkeypatch.setattr(rollout_source, "SamplerPool", LentPool)
    printed = run_script(tmp_path, "\n".join(python_blocks(PAGE)))
    [shown] = re.findall(r"```\n(determinism: .*?)\n```", PAGE, flags=re.DOTALL)
    begin, end = shown.split("...")
    assert printed.startswith(begin) and printed.rstrip().endswith(end)


def test_every_kit_is_on_the_page_and_lists_its_promises() -> None:
    kits = {name for name in testing.__all__ if name.startswith(("check_", "assert_"))}
    assert {name for name in kits if f"| `{name}` |" in PAGE} == kits
    for name in kits - {"assert_worker_invariant"}:
        text = getattr(testing, name).__doc__
        assert len(re.findall(r"^    - ``\w+``: ", text, flags=re.MULTILINE)) >= 8, name
