"""Gradients of many tasks, in stacks of several tasks, spread over threads. Results do not depend on their number.

Python threads keep two cores busier than torch's threads, which synchronize in each matrix product; but each torch
operation hands over the interpreter lock, so that stacks of several tasks are faster than single tasks.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar, final

import torch
from torch import Tensor

from metaroll.functional.gradients.meta_gradients import Samples, adapt, log_prob_of, mean_kl
from metaroll.learners.maml.outer import MetaLosses, MetaProblem, OuterState, OuterUpdate, meta_losses

__all__ = ["BatchedTasks", "InnerSteps", "inner_steps", "spread", "task_gradient", "with_old"]

T = TypeVar("T")

_FEW_ROWS, _MANY_ROWS = 2048, 8192
"""Steps per stack: from the first number on, matrix products are efficient; above the second, nothing is gained."""
_NUM_PARTS = 8
"""Minimum number of stacks, for as many threads, if each has more than ``_FEW_ROWS``."""

_lock = threading.Lock()
_inside = 0
_threads_of_new = 1


@contextlib.contextmanager
def _one_torch_thread() -> Iterator[int]:
    """Limits this Python thread to one torch thread; yields the previous number, which is restored afterwards.

    Each thread has its own number, and the last value set becomes the default of new threads: the last thread to leave
    also restores that default.
    """
    global _inside, _threads_of_new
    own = torch.get_num_threads()
    with _lock:
        if _inside == 0:
            _threads_of_new = own
        _inside += 1
    torch.set_num_threads(1)
    try:
        yield own
    finally:
        torch.set_num_threads(own)
        with _lock:
            _inside -= 1
            if _inside == 0 and own != _threads_of_new:
                other = threading.Thread(target=torch.set_num_threads, args=(_threads_of_new,))
                other.start()
                other.join()


def _begin_worker() -> None:
    torch.get_num_threads()  # the first call in a thread applies the default, so it must come before setting
    torch.set_num_threads(1)


@functools.cache
def _keep_memory() -> None:
    """Make malloc keep freed memory: otherwise threads return it after each product, and wait for zeroed pages again.

    The GNU C library raises its limits to the size of the largest block that was freed, up to 32 MiB (``mallopt(3)``,
    ``M_MMAP_THRESHOLD``); others do nothing.
    """
    torch.empty(30 * 2**20, dtype=torch.uint8)


def spread(compute: Callable[[int], T], count: int) -> list[T]:
    """``[compute(0), ..., compute(count - 1)]``, on as many Python threads as torch has threads."""
    _keep_memory()
    with _one_torch_thread() as threads:
        workers = min(threads, count)
        if workers <= 1:
            return [compute(number) for number in range(count)]
        with ThreadPoolExecutor(workers, initializer=_begin_worker) as pool:
            return list(pool.map(compute, range(count)))


class _Parts:
    """M tasks split into parts, each an index or a slice."""

    def __init__(self, num_tasks: int, rows: int) -> None:
        size = max(round(_FEW_ROWS / rows), min(round(_MANY_ROWS / rows), num_tasks // _NUM_PARTS))
        size = max(1, min(num_tasks, size))
        firsts = range(0, num_tasks, size)
        self.indices = [slice(a, min(a + size, num_tasks)) for a in firsts] if size > 1 else list(firsts)

    def cut(self, samples: Samples) -> list[Samples]:
        return [samples.map(lambda array, i=i: array[i]) for i in self.indices]


def _parts_of(samples: Samples) -> _Parts:
    return _Parts(samples.weights.shape[0], samples.weights.shape[1] * samples.weights.shape[2])


class InnerSteps(NamedTuple):
    """Parameters after one step and gradients, both ``(M, P)``, and ``KL(before || after)``, ``(M,)``."""

    parameters: Tensor
    gradients: Tensor
    kl: Tensor


def with_old(problem: MetaProblem, parameters: Tensor, samples: Samples) -> Samples:
    """``samples`` of M tasks, with the distributions of the policies ``(P,)`` or ``(M, P)`` that collected them."""
    parts = _parts_of(samples)
    stack = parameters.detach().expand(samples.weights.shape[0], -1)
    cut = parts.cut(samples)

    def compute(number: int) -> Samples:
        own = cut[number]
        with torch.no_grad():
            old = problem.distribution(stack[parts.indices[number]], own.observations)
            return Samples(**{**vars(own), "old": old, "old_log_prob": log_prob_of(old, own)})

    results = spread(compute, len(cut))
    join = torch.cat if isinstance(parts.indices[0], slice) else torch.stack
    olds = [part.old for part in results]
    leaves: list[list[Tensor]] = []
    for old in olds:
        mine: list[Tensor] = []
        old.map(lambda tensor, mine=mine: mine.append(tensor) or tensor)
        leaves.append(mine)
    joined = iter([join(list(each)) for each in zip(*leaves, strict=True)])
    old = olds[0].map(lambda _: next(joined))
    return Samples(**{**vars(samples), "old": old, "old_log_prob": join([part.old_log_prob for part in results])})


def inner_steps(
    problem: MetaProblem, meta_parameters: Tensor, parameters: Tensor, samples: Samples, scales: Tensor | None = None
) -> InnerSteps:
    """One inner step in each of M tasks, not differentiable itself.

    Args:
        problem: Distribution, objective and step sizes.
        meta_parameters: Include the step sizes if learned, ``(Q,)``.
        parameters: Parameters before the step, ``(P,)`` or ``(M, P)``.
        samples: Collected with these parameters.
        scales: Factors of the step sizes in each task, ``(M,)``.
    """
    parts = _parts_of(samples)
    stack = parameters.detach().expand(samples.weights.shape[0], -1)
    step_sizes = problem.split(meta_parameters.detach())[1]
    cut = parts.cut(samples)

    def compute(number: int) -> InnerSteps:
        index = parts.indices[number]
        begin = stack[index].clone().requires_grad_()
        sizes = step_sizes if scales is None else scales[index][..., None] * step_sizes
        # theta' = theta + alpha grad J(theta), (m, P) for the m tasks of a stack
        with torch.enable_grad():
            adapted = adapt(begin, [cut[number]], problem.distribution, sizes, kind=problem.inner, order=0)
        # KL(pi_theta || pi_theta'), (m,)
        with torch.no_grad():
            after = adapted.parameters[-1].detach()
            divergence = mean_kl(problem.distribution(after, cut[number].observations), cut[number])
        return InnerSteps(after, adapted.gradients[0], divergence)

    results = spread(compute, len(cut))
    join = torch.cat if isinstance(parts.indices[0], slice) else torch.stack
    return InnerSteps(*(join([part[k] for part in results]) for k in range(3)))


def task_gradient(
    problem: MetaProblem, outer: OuterUpdate, meta_parameters: Tensor, steps: Sequence[Samples], state: OuterState
) -> tuple[Tensor, MetaLosses]:
    """Gradient ``(Q,)`` of the summed losses of one task or a stack, and the detached losses; a pure function."""
    with torch.enable_grad():
        leaf = meta_parameters.detach().clone().requires_grad_()
        losses = meta_losses(problem, outer, leaf, steps, state, divergences=False)
        # dL/dtheta through the inner steps (MAML's second-order terms, unless first-order), (Q,)
        (gradient,) = torch.autograd.grad(losses.losses.sum(), leaf)
    return gradient * problem.trained, MetaLosses(*(value.detach() for value in losses))


@final
class BatchedTasks:
    """``TaskLosses`` of the samples of M tasks.

    Args:
        problem: The constants of the learner.
        outer: Defines the loss.
        steps: The samples of all K + 1 stages, each with a leading axis M.
    """

    def __init__(self, problem: MetaProblem, outer: OuterUpdate, steps: Sequence[Samples]) -> None:
        self._problem, self._outer = problem, outer
        self._num_tasks = int(steps[0].weights.shape[0])
        parts = _Parts(self._num_tasks, max(step.weights.shape[1] * step.weights.shape[2] for step in steps))
        self._parts = list(zip(*(parts.cut(step) for step in steps), strict=True))

    def gradient(self, meta_parameters: Tensor, state: OuterState) -> tuple[Tensor, MetaLosses]:
        """See ``TaskLosses``."""

        def compute(number: int) -> tuple[Tensor, MetaLosses]:
            return task_gradient(self._problem, self._outer, meta_parameters, self._parts[number], state)

        results = spread(compute, len(self._parts))
        # g = (1 / M) sum_m dL_m/dtheta, (Q,)
        gradient = torch.stack([part for part, _ in results]).sum(dim=0) / self._num_tasks
        return gradient, self._means_of([losses for _, losses in results])

    def means(self, meta_parameters: Tensor, state: OuterState) -> MetaLosses:
        """See ``TaskLosses``."""

        def compute(number: int) -> MetaLosses:
            with torch.enable_grad():
                leaf = meta_parameters.detach().clone().requires_grad_()
                losses = meta_losses(self._problem, self._outer, leaf, self._parts[number], state, differentiable=False)
            return MetaLosses(*(value.detach() for value in losses))

        return self._means_of(spread(compute, len(self._parts)))

    def kl_product(self, meta_parameters: Tensor, state: OuterState) -> Callable[[Tensor], Tensor]:
        """See ``TaskLosses``; the part shared by all products is computed once."""

        def prepare(number: int) -> Callable[[Tensor], Tensor]:
            return kl_product(self._problem, self._outer, meta_parameters, self._parts[number], state)

        products = spread(prepare, len(self._parts))

        def product(vector: Tensor) -> Tensor:
            # H v = (1 / M) sum_m H_m v, (Q,)
            results = spread(lambda number: products[number](vector), len(products))
            return torch.stack(results).sum(dim=0) / self._num_tasks

        return product

    def _means_of(self, results: Sequence[MetaLosses]) -> MetaLosses:
        def mean(values: list[Tensor]) -> Tensor:
            return torch.cat(values, dim=-1).mean(dim=-1)

        losses, outer = (mean([part[k].reshape(-1) for part in results]) for k in (0, 2))
        return MetaLosses(losses, mean([part.inner_kl.reshape(len(part.inner_kl), -1) for part in results]), outer)


def kl_product(
    problem: MetaProblem, outer: OuterUpdate, meta_parameters: Tensor, steps: Sequence[Samples], state: OuterState
) -> Callable[[Tensor], Tensor]:
    """Exact products of the Hessian of the summed ``outer_kl`` of some tasks with vectors ``(Q,)``; a pure function."""
    with torch.enable_grad():
        leaf = meta_parameters.detach().clone().requires_grad_()
        divergence = meta_losses(problem, outer, leaf, steps, state).outer_kl.sum()
        (slope,) = torch.autograd.grad(divergence, leaf, create_graph=True)  # dKL/dtheta, (Q,), differentiable

    def product(vector: Tensor) -> Tensor:
        # H v = d(dKL/dtheta . v)/dtheta, (Q,)
        (result,) = torch.autograd.grad(slope.dot(vector * problem.trained), leaf, retain_graph=True)
        return result * problem.trained

    return product
