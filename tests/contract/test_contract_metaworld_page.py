"""What docs/metaworld.md says works when it is pasted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "metaworld.md").read_text(encoding="utf-8")
TOLD = """
print(len(updates), len({update.task.env_name for update in updates}), env.spec.id)
first, _ = env.reset(seed=1)
print(first.shape, env.step(env.action_space.sample())[2:4])
"""


def test_the_block_of_python_runs_and_draws_two_tasks_of_each_class(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    command = [sys.executable, "-W", "ignore", "-c", block + TOLD]  # Meta-World's own observation spaces are warned of
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    counts, step = done.stdout.splitlines()
    assert counts.startswith("20 10 ")
    assert step == "(39,) (False, False)"
