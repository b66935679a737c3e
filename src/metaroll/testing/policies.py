"""A conformance kit: does a policy keep the promises of ``types.Policy`` that exact rollouts rest on?"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import torch
from torch import nn

from metaroll.checks import check_whole, described, entry_text
from metaroll.data.compare import trees_equal
from metaroll.data.data_format import iterate_leaves, map_leaves, own_copy
from metaroll.data.space_batches import check_elements, flatten_batch, stack_elements, take_rows
from metaroll.envs.lookup.source import EnvSource
from metaroll.errors import ConformanceError, ShapeError
from metaroll.policies.acting import ActingPolicy
from metaroll.policies.adapters import ForeignPolicy, as_policy
from metaroll.policies.parameters import ParameterLayout
from metaroll.seeding import policy_generator
from metaroll.testing.shared import check_factory, difference_of, globals_untouched, leaves_of, overwrite
from metaroll.types import Context, EnvSpec, Policy, PolicyInfo

__all__ = ["check_policy", "results_of"]

_BLOCK = 8
"""Rows in each call of a policy that is not ``width_independent``, as the engine calls it."""

_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
"""Tolerance between stacked and shared parameters, since different matrix products compute them in float32."""


def check_policy(
    make: Callable[[], Any],
    env: Any,
    *,
    contexts: Sequence[Context | None] | None = None,
    domain_params: Sequence[Mapping[str, Any]] | None = None,
    num_rows: int = 19,
    num_steps: int = 3,
    seed: int = 0,
) -> None:
    """Raise a ConformanceError unless a policy behaves as the rollout engine takes for granted.

    - ``form``: names, shapes and types of states, actions and infos.
    - ``space``: actions are finite elements of the action space, choices among those that there are (a Box may be
      exceeded: environments clip).
    - ``determinism``: the same arguments give the same bits, after any earlier calls.
    - ``noise``: where ``deterministic`` is set noise does not count (unless the policy is ``always_random``, or
      ``slow``).
    - ``rows``: a row has the same bits among any other rows, at any place, in any number of them (in blocks of 8 rows
      where the policy is not ``width_independent``); one flag and a flag per row mean the same.
    - ``reset``: rows of rollouts that start depend on their context and generator alone.
    - ``memory``: arguments are not changed, and what was returned does not change later, nor does overwriting it
      change anything (of policies that are ``width_independent``).
    - ``parameters``: the own parameters handed in, or loaded after earlier calls, give the bits of the live policy;
      stacked ones agree with each by itself.
    - ``copies``: a pickled copy and a deep copy act with the same bits, and share no parameter with the original.
    - ``state_dict``: a policy made alike acts with the same bits after ``load_state_dict`` (of torch modules), whatever
      was in its parameters, in its buffers and in all other tensors and modules that are its attributes. Constants are
      buffers with ``persistent=False``, and stay unchanged.
    - ``globals``: no global generator is moved, and no setting of torch or NumPy changed.
    - ``bad_numbers``: NaN in an observation raises nothing, and other rows keep their bits.

    Args:
        make: Makes the policy, or anything that ``as_policy`` takes; called twice.
        env: Where it acts: an environment, its constructor, an id, or an ``EnvSpec``.
        contexts: Knowledge of rollouts about their tasks; taken in turns. ``None`` means that there is nothing.
        domain_params: Constants of the environments, for policies that take them; taken in turns.
        num_rows: Number N of rows; two at least.
        num_steps: Steps of each rollout.
        seed: For observations, noise and draws.

    Raises:
        ConformanceError: A promise is broken.
        TypeError: ``make`` is not a function, or makes no policy.
        ValueError: A number is too small.
    """
    check_factory(make, "a function that makes a policy", "check_policy(lambda: GaussianMLPPolicy(spec), spec)")
    check_whole("num_rows", num_rows, 2)
    check_whole("num_steps", num_steps)
    spec = env if isinstance(env, EnvSpec) else EnvSource.of(env).spec
    policy = as_policy(make(), spec)
    starts = _Starts(contexts, domain_params, seed)
    kit = _Kit(policy, spec, starts, num_rows, num_steps, np.random.default_rng(seed))
    with globals_untouched("the policy"):
        kit.check_all()
    if _module_of(policy) is not None:
        kit.check_state_dict(as_policy(make(), spec))


def results_of(policy: Policy, spec: EnvSpec, num_rows: int = 4, num_steps: int = 3) -> list[dict[str, Any]]:
    """Results of a policy in each step, for observations that are the same in every call of this function.

    Args:
        policy: It is used unchanged.
        spec: Spaces of what it acts in.
        num_rows: Number N of rows; two at least.
        num_steps: Steps of each rollout.
    """
    starts = _Starts([policy.plan_context()], None, 0)
    kit = _Kit(policy, spec, starts, num_rows, num_steps, np.random.default_rng(0))
    return [call.result for call in kit.run()]


@dataclass(frozen=True)
class _Starts:
    """Starting conditions of rollouts, by their number."""

    contexts: Sequence[Context | None] | None
    domain_params: Sequence[Mapping[str, Any]] | None
    seed: int

    def of(self, policy: Policy, numbers: Sequence[int]) -> dict[str, np.ndarray]:
        """State rows of these rollouts."""
        contexts_given, constants = self.contexts or [None], self.domain_params
        contexts = [contexts_given[number % len(contexts_given)] for number in numbers]
        generators = [policy_generator((self.seed, 0, number)) for number in numbers]
        params = None
        if policy.info.takes_domain_params and constants is not None:
            params = [constants[number % len(constants)] for number in numbers]
        return policy.initial_state(contexts, generators, params)


@dataclass(frozen=True)
class _Call:
    """Arguments of ``act`` for N rows, and its result."""

    obs: Any
    state: dict[str, np.ndarray]
    noise: np.ndarray
    flags: np.ndarray
    actions: Any = None
    after: Any = None
    infos: Any = None

    @property
    def result(self) -> dict[str, Any]:
        return {"actions": self.actions, "state": _arrays(self.after), "infos": self.infos}


@dataclass
class _Kit:
    """The policy, the inputs of the checks, and the checks."""

    policy: Policy
    spec: EnvSpec
    starts: _Starts
    num_rows: int
    num_steps: int
    generator: np.random.Generator

    def __post_init__(self) -> None:
        self.info = self.policy.info
        self.everyone = np.arange(self.num_rows)
        if not isinstance(self.info, PolicyInfo):
            raise ConformanceError("form", f"info must be a PolicyInfo, got {self.info!r}")
        space = copy.deepcopy(self.spec.observation_space)  # its generator must not advance
        space.seed(int(self.generator.integers(2**31)))
        batches = [stack_elements(space, [space.sample() for _ in range(self.num_rows)]) for _ in range(self.num_steps)]
        self.observations = batches if self.info.structured else [flatten_batch(space, batch) for batch in batches]
        self.flags = self.generator.random(self.num_rows) < 0.4
        self.flags[:2] = True, False

    def check_all(self) -> None:
        calls = self.run()
        self.check_form(calls)
        self.check_determinism(calls)
        self.check_noise(calls)
        self.check_rows(calls)
        self.check_reset(calls)
        self.check_memory(calls)
        self.check_parameters(calls)
        self.check_copies(calls)
        self.check_bad_numbers(calls)

    # -- running -------------------------------------------------------------------------------------------------------

    def noise(self) -> np.ndarray:
        """Noise as the engine draws it ``(N, noise_dim)``, float32; zeros where rows act deterministically."""
        shape = (self.num_rows, self.info.noise_dim)
        drawn = self.generator.random(shape) if self.info.noise_kind == "uniform" else self.generator.normal(size=shape)
        if self.info.always_random:
            return drawn.astype(np.float32)
        return np.where(self.flags[:, None], 0.0, drawn).astype(np.float32)

    def act(self, call: _Call, policy: Policy | None = None, parameters: np.ndarray | None = None) -> _Call:
        """``call`` with the policy's result for copies of its arguments, in rows as the engine calls it."""
        policy = self.policy if policy is None else policy
        if not self.info.width_independent:
            return self._act_in_blocks(call, policy, parameters)
        state = own_copy(call.state)  # objects in it may remember in place
        actions, after, infos = policy.act(own_copy(call.obs), state, call.noise.copy(), call.flags.copy(), parameters)
        infos = dict(infos) if isinstance(infos, Mapping) else infos
        return _Call(call.obs, call.state, call.noise, call.flags, *own_copy((actions, after, infos)))

    def _act_in_blocks(self, call: _Call, policy: Policy, parameters: np.ndarray | None) -> _Call:
        count, parts = len(call.noise), []
        for begin in range(0, count, _BLOCK):
            rows = np.arange(begin, begin + _BLOCK)
            rows[rows >= count] = begin
            part = _rows_of(call, rows)
            stacked = parameters is not None and parameters.ndim == 2
            own = parameters[rows] if stacked and parameters is not None else parameters
            parts.append(policy.act(part.obs, part.state, part.noise, part.flags, own))
        actions = _joined([part[0] for part in parts], count)
        after, infos = (_joined([dict(part[place]) for part in parts], count) for place in (1, 2))
        return _Call(call.obs, call.state, call.noise, call.flags, actions, after, infos)

    def run(self) -> list[_Call]:
        """A rollout in each row."""
        state = self.starts.of(self.policy, range(self.num_rows))
        self._check_rows_of("initial_state", state, self.num_rows)
        calls = []
        for obs in self.observations:
            calls.append(self.act(_Call(obs, own_copy(state), self.noise(), self.flags)))
            state = calls[-1].after
        return calls

    def compare(self, expected: _Call, again: _Call, rule: str, message: str, hint: str = "") -> None:
        difference = difference_of(expected.result, again.result)
        if difference is not None:
            raise ConformanceError(rule, f"{message}: {difference}", hint)

    # -- checks --------------------------------------------------------------------------------------------------------

    def check_form(self, calls: list[_Call]) -> None:
        info = self.info
        if not isinstance(info.noise_dim, int) or info.noise_dim < 0 or info.noise_kind not in ("normal", "uniform"):
            raise ConformanceError("form", f"noise_dim and noise_kind are {info.noise_dim!r}, {info.noise_kind!r}")
        flat = self.policy.acting_parameters()
        if not isinstance(flat, np.ndarray) or flat.ndim != 1 or flat.dtype.kind != "f":
            raise ConformanceError("form", f"acting_parameters must return floats of shape (P,), got {described(flat)}")
        for step, call in enumerate(calls):
            if not isinstance(call.infos, Mapping):
                raise ConformanceError("form", f"infos must be a dict of arrays, got {described(call.infos)}")
            self._check_rows_of("the next state", call.after, self.num_rows)
            self._check_rows_of("infos", call.infos, self.num_rows)
            if call.after.keys() != calls[0].state.keys():
                raise ConformanceError(
                    "form",
                    f"the state after step {step} holds {sorted(call.after)}, and initial_state {sorted(call.state)}",
                    "a state has the same names from the beginning on",
                )
            self._check_actions(call.actions)
        if self.policy.info != info:
            raise ConformanceError("form", f"info was {info} and is {self.policy.info} now; it must stay as it is")

    def _check_rows_of(self, name: str, rows: Any, count: int) -> None:
        if not isinstance(rows, Mapping):
            raise ConformanceError("form", f"{name} must be a dict of arrays, got {described(rows)}")
        for key, value in rows.items():
            if not isinstance(value, np.ndarray) or value.shape[:1] != (count,):
                got = value.shape if isinstance(value, np.ndarray) else type(value).__name__
                raise ConformanceError("form", f"{name}[{key!r}] must be an array of {count} rows, got {got}")

    def _check_actions(self, actions: Any) -> None:
        space = self.spec.action_space
        try:
            rows = check_elements("actions", space, actions, self.num_rows)
        except ShapeError as error:
            raise ConformanceError("space", str(error)) from error
        for path, leaf in iterate_leaves(rows):
            where = f"actions{list(path)}" if path else "actions"
            if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
                wrong = entry_text(leaf[~np.isfinite(leaf)][0])
                raise ConformanceError("space", f"{where} are not finite: the first such number is {wrong}")
        if not isinstance(space, gymnasium.spaces.Discrete):
            return
        must = f"choices must be whole numbers from 0 below {space.n}"
        if rows.dtype.kind not in "iu":
            raise ConformanceError("space", f"{must}, got {described(rows)}")
        outside = (rows < 0) | (rows >= space.n)
        if outside.any():
            raise ConformanceError("space", f"{must}, got {entry_text(rows[outside][0])}")

    def check_determinism(self, calls: list[_Call]) -> None:
        hint = "keep what changes in the state, and draw from the noise"
        for step, call in reversed(list(enumerate(calls))):
            again = self.act(call)
            self.compare(call, again, "determinism", f"step {step}, with the same arguments again, differs", hint)

    def check_noise(self, calls: list[_Call]) -> None:
        if self.info.always_random or self.info.slow:  # foreign policies may have no deterministic mode
            return
        for step, call in enumerate(calls):
            other = self.act(_Call(call.obs, call.state, call.noise + np.float32(0.25), call.flags))
            rows = np.flatnonzero(call.flags)
            difference = difference_of(take_rows(call.actions, rows), take_rows(other.actions, rows))
            if difference is not None:
                message = f"in step {step} rows that act deterministically depend on noise: {difference}"
                raise ConformanceError("noise", message, "take the mean, or the likeliest choice, there")

    def check_rows(self, calls: list[_Call]) -> None:
        hint = "BLAS rounds a row by the number of rows: see functional/linear.py, or declare width_independent=False"
        widths = sorted({1, 2, 7, _BLOCK, self.num_rows} & set(range(1, self.num_rows + 1)))
        for step, call in enumerate(calls):
            for width in widths:
                rows = self.generator.permutation(self.num_rows)[:width]
                again = self.act(_rows_of(call, rows))
                message = f"in step {step} rows {rows.tolist()} have other bits among themselves than among all"
                self.compare(_results_of(call, rows), again, "rows", message, hint)
        for flag in (True, False):
            rows = np.flatnonzero(calls[0].flags == flag)
            part = _rows_of(calls[0], rows)
            if self.info.width_independent:
                actions, after, infos = self.policy.act(part.obs, part.state, part.noise, flag)
                again = _Call(part.obs, part.state, part.noise, part.flags, actions, after, dict(infos))
                message = f"deterministic={flag} for all rows differs from a flag for each"
                self.compare(_results_of(calls[0], rows), again, "rows", message)

    def check_reset(self, calls: list[_Call]) -> None:
        rows = self.generator.permutation(self.num_rows)[: max(1, self.num_rows // 2)]
        expected = self.starts.of(self.policy, range(self.num_rows))
        for numbers in (rows.tolist(), [int(rows[0])]):
            state = self.starts.of(self.policy, numbers)
            difference = _state_difference({name: value[numbers] for name, value in expected.items()}, state)
            if difference is not None:
                raise ConformanceError(
                    "reset",
                    f"initial_state of rollouts {numbers} differs from theirs among all: {difference}",
                    "draw for each rollout from its own generator",
                )
        difference = _state_difference(calls[0].state, expected)
        if difference is not None:
            raise ConformanceError(
                "reset",
                f"rollouts that start again do not start as at first: {difference}",
                "what a rollout leaves behind must not reach the next",
            )

    def check_memory(self, calls: list[_Call]) -> None:
        if not self.info.width_independent:
            return  # the blocks of this kit are copies
        for step, call in enumerate(calls):
            arguments = [own_copy(call.obs), own_copy(_arrays(call.state)), call.noise.copy(), call.flags.copy()]
            kept = own_copy(arguments)
            state = {name: value for name, value in own_copy(call.state).items() if name not in arguments[1]}
            result = self.policy.act(arguments[0], {**arguments[1], **state}, *arguments[2:])
            if not trees_equal(arguments, kept):
                raise ConformanceError("memory", f"act changed its arguments in step {step}", "work on copies")
            actions, after, infos = *result[:2], dict(result[2])
            if _share(actions, arguments):
                message = f"the actions of step {step} lie in the memory of the arguments"
                raise ConformanceError("memory", message, "return a copy")
            returned = own_copy([actions, _arrays(after), infos])
            self.act(calls[step - 1])
            difference = difference_of(returned, [actions, _arrays(after), infos])
            if difference is not None:
                message = f"what act returned in step {step} changed with the next call: {difference}"
                raise ConformanceError("memory", message, "return fresh memory from each call")
            overwrite([own for own in (actions, infos) if not _share(own, after)])
            overwrite(arguments)
            self.compare(
                call,
                self.act(call),
                "memory",
                f"overwriting what went in and came out in step {step} changes what the policy does",
                "copy what is kept",
            )

    def check_parameters(self, calls: list[_Call]) -> None:
        flat = self.policy.acting_parameters()
        overwrite(self.policy.acting_parameters())
        if not trees_equal(flat, self.policy.acting_parameters()):
            raise ConformanceError("parameters", "acting_parameters is a view of the policy's memory; return a copy")
        if not flat.size:
            return
        kept = flat.copy()
        for step, call in enumerate(calls):
            again = self.act(call, parameters=flat)
            self.compare(call, again, "parameters", f"the own parameters, handed in, differ in step {step}")
        moved = (flat + 0.05 * self.generator.standard_normal(flat.shape)).astype(flat.dtype)
        expected = self.act(calls[-1], parameters=moved)
        self.compare(calls[-1], self.act(calls[-1]), "parameters", "parameters that were handed in stay in the policy")
        loaded = copy.deepcopy(self.policy)
        # Where there are more, some parameters are not for acting.
        if isinstance(loaded, nn.Module) and _layout_of(loaded).size == flat.size:
            self.act(calls[-1], loaded)  # a copy that it keeps of its parameters must not act afterwards
            _layout_of(loaded).assign(loaded, moved)
            message = "parameters handed in differ from the same ones loaded"
            self.compare(expected, self.act(calls[-1], loaded), "parameters", message)
        if not trees_equal(flat, kept):
            raise ConformanceError("parameters", "act changed the parameters that it was given")
        self._check_stacks(calls[-1], [flat, moved, expected])

    def _check_stacks(self, call: _Call, known: list[Any]) -> None:
        flat, moved, of_moved = known
        choice = np.arange(self.num_rows) % 3 == 0
        stack = np.where(choice[:, None], moved, flat)
        stack = np.asfortranarray(stack) if self.info.parameter_columns else stack
        try:
            again = self.act(call, parameters=stack)
        except ShapeError:
            return  # it takes one set for all rows only
        for of_row, single in ((choice, of_moved), (~choice, call)):
            rows = np.flatnonzero(of_row)
            alike = _close(take_rows(single.actions, rows), take_rows(again.actions, rows))
            if not alike:
                message = "a stack of parameters (N, P) gives other actions than each of them by itself"
                raise ConformanceError("parameters", message, "row n acts with parameters[n]")
        rows = self.generator.permutation(self.num_rows)[: self.num_rows // 2 + 1]
        part = self.act(_rows_of(call, rows), parameters=stack[rows])
        message = f"with stacked parameters rows {rows.tolist()} have other bits among themselves than among all"
        self.compare(_results_of(again, rows), part, "parameters", message)

    def check_copies(self, calls: list[_Call]) -> None:
        for kind, other in (
            ("pickled", cloudpickle.loads(cloudpickle.dumps(self.policy))),
            ("deep", copy.deepcopy(self.policy)),
        ):
            for step, call in enumerate(calls):
                self.compare(call, self.act(call, other), "copies", f"a {kind} copy differs in step {step}")
            if isinstance(other, nn.Module):
                for value in other.parameters():
                    overwrite(value.detach())
                message = f"changing the parameters of a {kind} copy changes the original"
                self.compare(calls[0], self.act(calls[0]), "copies", message, "leave caches out in __getstate__")

    def check_bad_numbers(self, calls: list[_Call]) -> None:
        call = calls[-1]
        obs = map_leaves(lambda leaf, path: _with_nan(leaf), own_copy(call.obs))
        if trees_equal(obs, call.obs):
            return  # no floats
        try:
            again = self.act(_Call(obs, call.state, call.noise, call.flags))
        except Exception as error:
            message = f"NaN in an observation raises {type(error).__name__}: {error}"
            raise ConformanceError("bad_numbers", message, "the engine names plan and step of it") from error
        rows = self.everyone[1:]
        message = "NaN in the observation of row 0 changes other rows"
        self.compare(_results_of(call, rows), _results_of(again, rows), "bad_numbers", message)

    def check_state_dict(self, other: Policy) -> None:
        """``other`` was made alike, and gets other numbers in all tensors before it loads those of the policy."""
        other = copy.deepcopy(other)  # parts that both may share must not be changed
        module, loading = _module_of(self.policy), _module_of(other)
        if module is None or loading is None:
            return
        calls = self.run()
        plain = _plain_tensors(loading)
        with torch.no_grad():
            for value in (*loading.state_dict(keep_vars=True).values(), *plain.values()):
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    value.add_(value.abs() + 0.125)  # no number stays unchanged
        loading.load_state_dict(module.state_dict())
        hint = "register what act uses as parameter, buffer or module (a constant as a buffer with persistent=False)"
        if plain:
            hint += f"; tensors that are neither: {', '.join(plain)}"
        for step, call in enumerate(calls):
            self.compare(
                call,
                self.act(call, other),
                "state_dict",
                f"a policy made alike that loaded the state_dict differs in step {step}",
                hint,
            )


def _rows_of(call: _Call, rows: np.ndarray) -> _Call:
    """The arguments of some rows, as copies."""
    state = {name: own_copy(value[rows]) for name, value in call.state.items()}
    return _Call(take_rows(call.obs, rows), state, call.noise[rows], call.flags[rows])


def _results_of(call: _Call, rows: np.ndarray) -> _Call:
    after = {name: value[rows] for name, value in call.after.items()}
    infos = {name: value[rows] for name, value in call.infos.items()}
    actions = take_rows(call.actions, rows)
    return _Call(call.obs, call.state, call.noise, call.flags, actions, after, infos)


def _joined(parts: list[Any], count: int) -> Any:
    trees = [dict(iterate_leaves(part)) for part in parts]
    return map_leaves(lambda _, path: np.concatenate([tree[path] for tree in trees])[:count], parts[0])


def _arrays(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The numeric parts of a state; objects remember in place."""
    return {name: value for name, value in state.items() if not value.dtype.hasobject}


def _state_difference(expected: Mapping[str, np.ndarray], again: Mapping[str, np.ndarray]) -> str | None:
    return difference_of(_arrays(expected), _arrays(again))


def _share(tree: Any, others: Any) -> bool:
    """Whether an array of ``tree`` lies in the memory of one of ``others``."""
    own = [leaf for _, leaf in iterate_leaves(tree) if isinstance(leaf, np.ndarray)]
    theirs = [leaf for _, leaf in iterate_leaves(tuple(others) if isinstance(others, list) else others)]
    return any(np.may_share_memory(a, b) for a in own for b in theirs if isinstance(b, np.ndarray))


def _close(a: Any, b: Any) -> bool:
    """Whether actions agree: choices exactly, numbers nearly."""
    leaves = [[leaf for _, leaf in iterate_leaves(tree)] for tree in (a, b)]
    return all(
        np.allclose(one, two, _RELATIVE, _ABSOLUTE) if one.dtype.kind == "f" else trees_equal(one, two)
        for one, two in zip(*leaves, strict=True)
    )


def _layout_of(policy: nn.Module) -> ParameterLayout:
    """The layout of the parameters that the module acts with."""
    return policy.parameter_layout() if isinstance(policy, ActingPolicy) else ParameterLayout.of(policy)


def _module_of(policy: Policy) -> nn.Module | None:
    """The module whose ``state_dict`` is that of the policy, if there is one."""
    acting = policy.policy if isinstance(policy, ForeignPolicy) else policy
    return acting if isinstance(acting, nn.Module) else None


def _plain_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Tensors that lie in attributes of the module, or of modules in it, and are no parameter or buffer; by name."""
    registered = {id(value) for value in (*module.parameters(), *module.buffers())}
    tensors = {
        f"{prefix}.{name}{path}".lstrip("."): leaf
        for prefix, part in module.named_modules()
        for name, value in vars(part).items()
        for path, leaf in leaves_of(value)
    }
    for path, leaf in list(tensors.items()):
        if isinstance(leaf, nn.Module):  # in a plain list rather than a ModuleList
            tensors |= {f"{path}.{name}": value for name, value in leaf.state_dict(keep_vars=True).items()}
    return {
        path: leaf for path, leaf in tensors.items() if isinstance(leaf, torch.Tensor) and id(leaf) not in registered
    }


def _with_nan(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f":
        leaf[0] = np.nan
    return leaf
