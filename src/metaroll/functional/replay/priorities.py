"""Drawing in proportion to priorities (Schaul et al. 2016, "Prioritized Experience Replay", section 3.3).

Sums of priorities lie in a binary tree, an array ``(2 P,)`` of float64 for P = a power of 2 leaves: node 1 is the sum
of all, nodes 2 i and 2 i + 1 are the parts of node i, and leaf k is node P + k. Every node is the current sum of its
two parts, so the tree depends on its leaves alone, not on the order in which they were set.
"""

from __future__ import annotations

import numpy as np

__all__ = ["importance_weights", "priority_of", "sum_tree", "tree_find", "tree_set"]

_TOP = 10
"""Levels that are searched at once, by a cumulative sum."""


def sum_tree(num_leaves: int) -> np.ndarray:
    """A tree of zeros with room for ``num_leaves``."""
    return np.zeros(2 << max(0, num_leaves - 1).bit_length())


def tree_set(tree: np.ndarray, leaves: np.ndarray, values: np.ndarray) -> None:
    """Set the leaves ``(N,)``, which must differ or get the same value, and mend the sums above them."""
    nodes = leaves + len(tree) // 2
    tree[nodes] = values
    while len(nodes) and nodes[0] > 1:
        nodes = nodes >> 1
        if len(nodes) > 64:
            nodes = nodes[np.append(True, nodes[1:] != nodes[:-1])]  # neighbors share what is above them
        tree[nodes] = tree[2 * nodes] + tree[2 * nodes + 1]


def tree_find(tree: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Leaves ``(N,)`` at which the running sum of all leaves exceeds ``values (N,)``; never one that is 0."""
    half = len(tree) // 2
    first = min(1 << _TOP, half)
    sums = np.cumsum(tree[first : 2 * first])
    filled = np.flatnonzero(tree[first : 2 * first])
    nodes = np.minimum(sums.searchsorted(values, side="right"), filled[-1])
    left = np.maximum(values - (sums[nodes] - tree[first + nodes]), 0.0)
    nodes += first
    while nodes[0] < half:
        nodes *= 2
        part = tree.take(nodes)
        to_right = (left >= part) & (tree.take(nodes + 1) > 0.0)
        left -= np.where(to_right, part, 0.0)
        nodes += to_right
    return nodes - half


def priority_of(errors: np.ndarray, exponent: float, floor: float) -> np.ndarray:
    """Priorities ``(|error| + floor) ** exponent`` (Schaul et al. 2016, section 3.3)."""
    return (np.abs(errors) + floor) ** exponent


def importance_weights(probabilities: np.ndarray, count: int, exponent: float) -> np.ndarray:
    """``(count * P)^-exponent``, divided by the largest (Schaul et al. 2016, section 3.4, beta is the exponent).

    Args:
        probabilities: Probabilities of the drawn steps, ``(N,)``.
        count: Number of steps from which they were.
        exponent: 0 leaves the bias, 1 makes up for it.
    """
    weights = (count * probabilities) ** -exponent
    return weights / weights.max()
