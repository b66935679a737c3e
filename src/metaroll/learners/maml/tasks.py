"""Gradients of many tasks: some at a time as a stack, spread over threads. Results do not depend on how many there are.

Threads of Python keep two cores busier than threads of torch, which wait for one another in each product; but each
operation of torch passes the interpreter's lock on, so that stacks of several tasks are faster than tasks one by one.
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
"""Steps of a stack: so many are worth matrix products of their own; above that nothing is gained."""
_NUM_PARTS = 8
"""With more than ``_FEW_ROWS`` in each, there are at least so many stacks, for as many threads."""

_lock = threading.Lock()
_inside = 0
_threads_of_new = 1


@contextlib.contextmanager
def _one_torch_thread() -> Iterator[int]:
    """Inside, this thread of Python computes with one thread of torch; yields how many it had, and has afterwards.

    Each thread has its own number, and the last one that was set is that of threads to come: so the last thread to
    leave gives them back what they had, too.
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
    torch.get_num_threads()  # the first call takes over the number of threads to come, whatever was set before
    torch.set_num_threads(1)


@functools.cache
def _keep_memory() -> None:
    """Let malloc keep what is freed: else threads hand it back after each product, and wait for zeroed pages again.

    The GNU C library raises its limits to the size of the largest block that was freed, up to 32 MiB (``mallopt(3)``,
    ``M_MMAP_THRESHOLD``); others do nothing.
    """
    torch.empty(30 * 2**20, dtype=torch.uint8)


def spread(compute: Callable[[int], T], count: int) -> list[T]:
    """``[compute(0), ..., compute(count - 1)]``, on as many threads as torch has; each computes with one."""
    _keep_memory()
    with _one_torch_thread() as threads:
        workers = min(threads, count)
        if workers <= 1:
            return [compute(number) for number in range(count)]
        with ThreadPoolExecutor(workers, initializer=_begin_worker) as pool:
            return list(pool.map(compute, range(count)))


class _Parts:
    """M tasks cut into parts: an index or a slice for each."""

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
    """Parameters after one step, gradients, both ``(M, P)``, and ``KL(before || after)``, ``(M,)``."""

    parameters: Tensor
    gradients: Tensor
    kl: Tensor


def with_old(problem: MetaProblem, parameters: Tensor, samples: Samples) -> Samples:
    """``samples`` of M tasks that know the policies ``(P,)`` or ``(M, P)`` which made them."""
    parts = _parts_of(samples)
    stack = parameters.detach().expand(samples.weights.shape[0], -1)
    cut = parts.cut(samples)

    def compute(number: int) -> Samples:
        own = cut[number]
        with torch.no_grad():
            acts = problem.distribution(stack[parts.indices[number]], own.observations)
            return Samples(**{**vars(own), "old": acts, "old_log_prob": log_prob_of(acts, own)})

    found = spread(compute, len(cut))
    whole = isinstance(parts.indices[0], slice)
    join = torch.cat if whole else torch.stack
    olds = [part.old for part in found]
    leaves: list[list[Tensor]] = []
    for old in olds:
        mine: list[Tensor] = []
        old.map(lambda tensor, mine=mine: mine.append(tensor) or tensor)
        leaves.append(mine)
    joined = iter([join(list(each)) for each in zip(*leaves, strict=True)])
    old = olds[0].map(lambda _: next(joined))
    return Samples(**{**vars(samples), "old": old, "old_log_prob": join([part.old_log_prob for part in found])})


def inner_steps(
    problem: MetaProblem, meta_parameters: Tensor, parameters: Tensor, samples: Samples, scales: Tensor | None = None
) -> InnerSteps:
    """One inner step in each of M tasks, without derivatives of it.

    Args:
        problem: Says how.
        meta_parameters: Hold the step sizes, ``(Q,)``.
        parameters: From where, ``(P,)`` or ``(M, P)``.
        samples: Of these parameters.
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
        with torch.enable_grad():
            passed = adapt(begin, [cut[number]], problem.distribution, sizes, kind=problem.inner, order=0)
        with torch.no_grad():
            after = passed.parameters[-1].detach()
            divergence = mean_kl(problem.distribution(after, cut[number].observations), cut[number])
        return InnerSteps(after, passed.gradients[0], divergence)

    found = spread(compute, len(cut))
    join = torch.cat if isinstance(parts.indices[0], slice) else torch.stack
    return InnerSteps(*(join([part[k] for part in found]) for k in range(3)))


def task_gradient(
    problem: MetaProblem, outer: OuterUpdate, meta_parameters: Tensor, steps: Sequence[Samples], state: OuterState
) -> tuple[Tensor, MetaLosses]:
    """Gradient ``(Q,)`` of the sum of the losses of one task or of a stack, and what was found; a pure function."""
    with torch.enable_grad():
        leaf = meta_parameters.detach().clone().requires_grad_()
        found = meta_losses(problem, outer, leaf, steps, state, divergences=False)
        (gradient,) = torch.autograd.grad(found.losses.sum(), leaf)
    return gradient * problem.trained, MetaLosses(*(value.detach() for value in found))


@final
class BatchedTasks:
    """``TaskLosses`` of the samples of M tasks.

    Args:
        problem: What stays the same.
        outer: Says what is minimized.
        steps: The samples of all K + 1 moments, each with a leading axis M.
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

        found = spread(compute, len(self._parts))
        gradient = torch.stack([part for part, _ in found]).sum(dim=0) / self._num_tasks
        return gradient, self._means_of([losses for _, losses in found])

    def means(self, meta_parameters: Tensor, state: OuterState) -> MetaLosses:
        """See ``TaskLosses``."""

        def compute(number: int) -> MetaLosses:
            with torch.enable_grad():
                leaf = meta_parameters.detach().clone().requires_grad_()
                found = meta_losses(self._problem, self._outer, leaf, self._parts[number], state, differentiable=False)
            return MetaLosses(*(value.detach() for value in found))

        return self._means_of(spread(compute, len(self._parts)))

    def kl_product(self, meta_parameters: Tensor, state: OuterState) -> Callable[[Tensor], Tensor]:
        """See ``TaskLosses``; what all products share is computed once."""

        def prepare(number: int) -> Callable[[Tensor], Tensor]:
            return kl_product(self._problem, self._outer, meta_parameters, self._parts[number], state)

        products = spread(prepare, len(self._parts))

        def product(vector: Tensor) -> Tensor:
            found = spread(lambda number: products[number](vector), len(products))
            return torch.stack(found).sum(dim=0) / self._num_tasks

        return product

    def _means_of(self, found: Sequence[MetaLosses]) -> MetaLosses:
        def mean(values: list[Tensor]) -> Tensor:
            return torch.cat(values, dim=-1).mean(dim=-1)

        losses, outer = (mean([part[k].reshape(-1) for part in found]) for k in (0, 2))
        return MetaLosses(losses, mean([part.inner_kl.reshape(len(part.inner_kl), -1) for part in found]), outer)


def kl_product(
    problem: MetaProblem, outer: OuterUpdate, meta_parameters: Tensor, steps: Sequence[Samples], state: OuterState
) -> Callable[[Tensor], Tensor]:
    """Exact products of the Hessian of the summed ``outer_kl`` of some tasks with vectors ``(Q,)``; a pure function."""
    with torch.enable_grad():
        leaf = meta_parameters.detach().clone().requires_grad_()
        divergence = meta_losses(problem, outer, leaf, steps, state).outer_kl.sum()
        (slope,) = torch.autograd.grad(divergence, leaf, create_graph=True)

    def product(vector: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(slope.dot(vector * problem.trained), leaf, retain_graph=True)
        return found * problem.trained

    return product
