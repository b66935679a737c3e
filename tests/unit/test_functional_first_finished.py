"""The biased rule of Meta-World's evaluation, named as such (specs/meta.md 5.5): counted as its loop would."""

from __future__ import annotations

import numpy as np
import pytest

from metaroll.functional.first_finished import first_finished_rates


def stepwise(names: list[str], lengths: np.ndarray, success: np.ndarray, num_episodes: int) -> dict[str, float]:
    """The loop itself: all instances step together, and the first episodes to end are kept."""
    kept: dict[str, list[bool]] = {name: [] for name in names}
    episode, elapsed = np.zeros(len(names), dtype=int), np.zeros(len(names), dtype=int)
    while any(len(done) < num_episodes for done in kept.values()):
        elapsed += 1
        for i, name in enumerate(names):
            if episode[i] < lengths.shape[1] and elapsed[i] == lengths[i, episode[i]]:
                kept[name].append(bool(success[i, episode[i]]))
                episode[i], elapsed[i] = episode[i] + 1, 0
    return {name: float(np.mean(done[:num_episodes])) for name, done in kept.items()}


def test_short_episodes_count_first() -> None:
    # At steps 2 and 4 the second instance succeeds; the first one's failure would come at step 5.
    lengths, success = [[5, 5], [2, 2]], [[False, False], [True, True]]
    assert first_finished_rates(["a", "a"], lengths, success, 2) == {"a": 1.0}
    assert first_finished_rates(["a", "b"], lengths, success, 2) == {"a": 0.0, "b": 1.0}


def test_it_is_the_loop() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        names = list(generator.choice(["a", "b", "c"], size=6))
        success = generator.random((6, 3)) < 0.4
        lengths = np.where(success, generator.integers(1, 8, (6, 3)), 10)
        assert first_finished_rates(names, lengths, success, 3) == stepwise(names, lengths, success, 3)


def test_too_few_episodes_are_refused() -> None:
    # After one episode each, a second one of instance 1 (steps 2 to 4) might have been among the first two.
    with pytest.raises(ValueError, match="run at least 2"):
        first_finished_rates(["a", "a"], [[5], [2]], [[False], [True]], 2)
    with pytest.raises(ValueError, match="at least 1"):
        first_finished_rates(["a"], [[0]], [[True]], 1)
    with pytest.raises(ValueError, match="shape"):
        first_finished_rates(["a"], [[3], [3]], [[True], [True]], 1)


def test_success_is_true_or_false() -> None:
    with pytest.raises(TypeError, match="success"):
        first_finished_rates(["a"], [[1, 1, 1]], [["False", "False", "False"]])
    with pytest.raises(ValueError, match="success"):
        first_finished_rates(["a"], [[1, 1, 1]], [[0, float("nan"), 1]])
