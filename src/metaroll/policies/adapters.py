"""Adapters of other policies to ``types.Policy``: callables, objects with ``get_action``, torch modules, scripts."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import gymnasium
import numpy as np
import torch
from torch import nn

from metaroll.data.data_format import map_leaves
from metaroll.data.space_batches import action_row, check_elements, flat_actions, take_rows
from metaroll.errors import ShapeError
from metaroll.policies.actor import Actor
from metaroll.policies.parameters import ParameterFreePolicy, ParameterLayout
from metaroll.seeding import GlobalStream, derive_seed, isolated_rng
from metaroll.types import Context, EnvSpec, Policy, PolicyInfo, PolicyState

__all__ = [
    "INFO_ROWS",
    "ContextEncoder",
    "ForeignMetaPolicy",
    "ForeignPolicy",
    "ScriptedPolicy",
    "as_policy",
    "inside_of",
    "reinitialize",
]

INFO_ROWS = "rows"
"""Name of the infos of a foreign policy: an object array of dicts."""


def as_policy(policy: Any, env_spec: EnvSpec) -> Policy:
    """``policy`` as ``types.Policy``: itself if it is one, else an adapter. The only place that probes such objects.

    Args:
        policy: A ``Policy``; an ``Actor`` (an agent), whose policy is used; an object with
            ``get_action(obs) -> (action, infos)``; a torch module or callable ``obs -> action``.
        env_spec: Spaces of the environment.

    Raises:
        TypeError: It is none of these.
    """
    if isinstance(policy, type):
        raise TypeError(f"policy must be an instance, got the class {policy.__name__}; construct it first")
    if isinstance(policy, Actor):
        wanted, here = policy.env_spec, EnvSpec.from_env(env_spec)
        for name in ("observation_space", "action_space"):
            space, other = getattr(wanted, name), getattr(here, name)
            if type(space) is not type(other) or space.shape != other.shape:
                raise ShapeError(f"the agent acts in environments whose {name} is like {space}, got {other}")
        return policy.policy
    if isinstance(policy, Policy):
        return policy
    if hasattr(policy, "initial_state") and hasattr(policy, "act"):
        raise TypeError(f"policy acts as a metaroll.types.Policy: derive {type(policy).__name__} from that class")
    if hasattr(policy, "get_action") or callable(policy):
        return ForeignPolicy(policy, env_spec)
    raise TypeError(
        f"policy must be a metaroll.types.Policy, have get_action, or be callable, got {type(policy).__name__}"
    )


def inside_of(policy: Any) -> Any:
    """The inner policy of a wrapper or adapter (its ``policy``); ``None`` for other policies."""
    return getattr(policy, "policy", None)


def reinitialize(module: nn.Module, generator: torch.Generator) -> None:
    """New weights, by the module's own method if it has one (``reinitialize``, or torch's ``reset_parameters``)."""
    own, torchs = getattr(module, "reinitialize", None), getattr(module, "reset_parameters", None)
    if callable(own):
        own(generator)
    elif callable(torchs):
        torchs()
    else:
        for child in module.children():
            reinitialize(child, generator)


@final
class ContextEncoder:
    """Optional members of an encoder of context rows (any module), besides ``forward``.

    Args:
        module: The encoder.

    Attributes:
        recurrent: Whether it is recurrent over rows.
        input_dim: Width of a row; ``None`` if unknown.
        output_dim: Width of its outputs; ``None`` if unknown.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.recurrent = bool(getattr(module, "recurrent", False))
        self.input_dim: int | None = getattr(module, "input_dim", None)
        self.output_dim: int | None = getattr(module, "output_dim", None)

    def reset(self) -> None:
        """Reset the hidden state."""
        self._call("reset")

    def detach_hidden(self) -> None:
        """Detach the hidden state from the graph of earlier rows."""
        self._call("detach_hidden")

    def _call(self, name: str) -> None:
        method = getattr(self._module, name, None)
        if callable(method):
            method()


class ForeignPolicy(Policy):
    """Runs a policy row by row, with Python's, NumPy's and torch's global generators seeded for each row.

    So it acts the same in every slot and worker, even if it draws from global generators, but slowly (``slow``). It
    gets observations in the environment's own form (images in uint8, dicts), and returns actions in that form. The
    object's own generators cannot be isolated. An object with ``reset()`` may have state: every rollout gets a deep
    copy of it, after ``reset``. If its ``reset`` takes ``domain_param``, it gets the domain parameters.

    Args:
        policy: See ``as_policy``.
        env_spec: Spaces of the environment.
    """

    def __init__(self, policy: Any, env_spec: EnvSpec) -> None:
        self.policy = policy
        self.env_spec = EnvSpec.from_env(env_spec)
        call = policy.get_action if hasattr(policy, "get_action") else policy
        self._takes_deterministic = "deterministic" in _parameters(call)
        reset = getattr(policy, "reset", None)
        self._remembers = callable(reset)
        reset_parameters = _parameters(reset).values() if self._remembers else ()
        # Two numbers, since one float32 has 24 random bits, too few for different seeds in a million steps.
        self._info = PolicyInfo(
            2,
            "uniform",
            structured=True,
            row_by_row=True,
            slow=True,
            takes_domain_params=any(p.name == "domain_param" or p.kind is p.VAR_KEYWORD for p in reset_parameters),
            draws=self._remembers,
        )
        self._layout = ParameterLayout.of(policy) if isinstance(policy, nn.Module) else None
        self._twin: tuple[np.ndarray | None, Any] = (None, None)

    @property
    def info(self) -> PolicyInfo:
        """Slow, row by row, on observations in the environment's own form."""
        return self._info

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """A reset copy of the object for every rollout, ``{"agent": (N,) objects}``, if it has ``reset``.

        Args:
            contexts: Not used.
            generators: Seed the global generators while the copies are reset.
            domain_params: Arguments of ``reset`` for each environment if it ``takes_domain_params``.
        """
        if not self._remembers:
            return {}
        agents = np.empty(len(contexts), dtype=object)
        for row, generator in enumerate(generators):
            agents[row] = copy.deepcopy(self.policy)
            params = None if domain_params is None else domain_params[row]
            with isolated_rng(int(generator.integers(2**32))):
                agents[row].reset(**({} if params is None else {"domain_param": dict(params)}))
        return {"agent": agents}

    def act(
        self,
        obs: Any,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[Any, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; ``obs`` flat, or as the environment's own batch.

        Copies in ``state`` keep their own state: they change in place.

        Infos are returned as one object array of dicts: their names may differ from row to row, and must not depend on
        which rows share a call. The engine stacks them for each rollout.
        """
        count = len(noise)
        flags = np.broadcast_to(np.asarray(deterministic, dtype=bool).reshape(-1), (count,))
        actions, infos = [], []
        self._twin = (None, self._twin[1])  # the vector may have been changed in place since the last call
        for row in range(count):
            own = parameters[row] if parameters is not None and parameters.ndim == 2 else parameters
            agent = self._agent(state, row, own)
            with isolated_rng(_seed_from(noise[row])), torch.no_grad():
                action, info = self._call(agent, self._observation(obs, row), bool(flags[row]))
            actions.append(self._action(action))
            infos.append(info)
        return flat_actions(self.env_spec.action_space, actions), state, _as_rows(infos)

    def acting_parameters(self) -> np.ndarray:
        """Flat parameters of a torch module, float32 ``(P,)``; of anything else none, ``(0,)``."""
        if self._layout is None:
            return np.zeros(0, dtype=np.float32)
        return self._layout.flatten(self.policy)

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _agent(self, state: PolicyState, row: int, parameters: np.ndarray | None) -> Any:
        agent = state["agent"][row] if self._remembers else self.policy
        if parameters is None or (self._layout is None and parameters.size == 0):
            return agent
        if self._layout is None:
            raise ValueError(
                f"parameters cannot be given to a {type(self.policy).__name__}: only torch modules take flat vectors"
            )
        if self._remembers:
            self._layout.assign(agent, parameters)
            return agent
        known, twin = self._twin
        if twin is None or known is not parameters:
            # A copy, since the caller's module may be in training.
            twin = copy.deepcopy(self.policy) if twin is None else twin
            self._layout.assign(twin, parameters)
            for own, live in zip(twin.buffers(), self.policy.buffers(), strict=True):
                own.copy_(live)
            self._twin = (parameters, twin)
        return twin

    def _call(self, agent: Any, obs: Any, deterministic: bool) -> tuple[Any, Mapping[str, Any]]:
        extra = {"deterministic": deterministic} if self._takes_deterministic else {}
        if hasattr(agent, "get_action"):
            result = agent.get_action(obs, **extra)
        elif isinstance(agent, nn.Module):
            reference = next(agent.parameters(), None)
            batch = map_leaves(lambda leaf, path: _as_batch(leaf, reference), obs)
            result = agent(batch, **extra)
        else:
            result = agent(obs, **extra)
        is_pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)
        action, info = result if is_pair else (result, {})
        if action is None:
            raise TypeError(f"{type(agent).__name__} must return an action, got None; is a return missing?")
        if isinstance(action, torch.distributions.Distribution):
            action = _likely(action) if deterministic else action.sample()
        elif deterministic and not self._takes_deterministic and "mean" in info:
            action = info["mean"]
        return action, info

    def _observation(self, obs: Any, row: int) -> Any:
        """Row ``row`` in the environment's own form."""
        space = self.env_spec.observation_space
        if isinstance(space, gymnasium.spaces.Box):
            return obs[row].astype(space.dtype).reshape(space.shape)
        if isinstance(obs, np.ndarray) and obs.ndim == 2 and obs.shape[1:] != space.shape:
            return gymnasium.spaces.unflatten(space, obs[row])
        return take_rows(obs, row)

    def _action(self, action: Any) -> Any:
        """The row of a batch of actions (see ``Policy.act``) for the object's result."""
        space = self.env_spec.action_space
        if isinstance(action, torch.Tensor):
            action = action.detach().cpu().numpy()
        row = action_row(space, action, "the policy's action")
        if isinstance(space, gymnasium.spaces.Box):
            return np.array(row, dtype=np.float64 if space.dtype == np.float64 else np.float32)
        return row

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_twin": (None, None)}


class ScriptedPolicy(ParameterFreePolicy):
    """A policy by a function of observations and contexts: oracles, baselines, experts.

    Args:
        function: ``function(obs (N, obs_dim), contexts) -> actions (N, act_dim)`` (``(N,)`` for Discrete), independent
            for each row. ``contexts`` maps each name in the rollouts' contexts to an array ``(N, ...)``, such as
            ``{"goal": (N, 2)}``; it is empty if rollouts have no context.
        env_spec: Spaces of the environment; with it, shapes of actions are checked.
        structured: Whether ``function`` gets observations as the environment's own batch (``(N, *shape)`` in the dtype
            of the space, dicts and tuples of such) instead of flat rows.
    """

    def __init__(
        self,
        function: Callable[[np.ndarray, dict[str, np.ndarray]], np.ndarray],
        env_spec: EnvSpec | None = None,
        *,
        structured: bool = False,
    ) -> None:
        if not callable(function):
            raise TypeError(f"function must be callable as function(obs, contexts), got {type(function).__name__}")
        self.function = function
        self._structured = structured
        self.env_spec = None if env_spec is None else EnvSpec.from_env(env_spec)

    @property
    def info(self) -> PolicyInfo:
        """Without noise; ``structured`` as configured."""
        return PolicyInfo(structured=self._structured, draws=False)

    def initial_state(
        self,
        contexts: Sequence[Context | None],
        generators: Sequence[np.random.Generator],
        domain_params: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> PolicyState:
        """The contexts, stacked by name.

        Raises:
            ValueError: Contexts have different names.
        """
        names = set(contexts[0] or {})
        if any(set(context or {}) != names for context in contexts):
            raise ValueError(
                f"all rollouts need the same context names, got {[sorted(context or {}) for context in contexts]}"
            )
        return {name: np.stack([np.asarray((context or {})[name]) for context in contexts]) for name in sorted(names)}

    def act(
        self,
        obs: Any,
        state: PolicyState,
        noise: np.ndarray,
        deterministic: bool | np.ndarray = False,
        parameters: np.ndarray | None = None,
    ) -> tuple[Any, PolicyState, dict[str, np.ndarray]]:
        """See ``types.Policy.act``; without infos.

        Raises:
            ShapeError: Actions do not fit the space.
            TypeError: The function returned nothing.
        """
        actions = self.function(obs, dict(state))
        if actions is None:
            raise TypeError("the function of a ScriptedPolicy must return actions, got None; is a return missing?")
        if self.env_spec is not None:
            actions = check_elements("the function's actions", self.env_spec.action_space, actions, len(noise))
        # A constant action may be one row broadcast, or the observations themselves.
        return map_leaves(lambda leaf, path: np.array(leaf), actions), state, {}


class ForeignMetaPolicy:
    """A policy for many tasks at once, like those of ProMP: ``get_actions`` of a list of M arrays ``(E, obs_dim)``.

    It returns actions, M lists or arrays of E, and infos, M lists of E dicts (or nothing). Global generators are seeded
    for it.

    Args:
        policy: The policy.
        seed: Seed of its draws.
    """

    def __init__(self, policy: Any, seed: int) -> None:
        self.policy = policy
        self._stream = GlobalStream(derive_seed("meta policy", seed))

    @staticmethod
    def fits(policy: Any) -> bool:
        """Whether ``policy`` acts for many tasks at once, and not for rows of observations (like those of garage)."""
        if isinstance(policy, type | Policy | Actor) or not callable(getattr(policy, "get_actions", None)):
            return False
        return hasattr(policy, "switch_to_pre_update") or not hasattr(policy, "get_action")

    def act(self, observations: Sequence[Any], num_tasks: int) -> tuple[list[Any], list[dict[str, Any]]]:
        """Actions and infos for the observations of all environments, ``num_tasks`` groups of equal size in a row.

        Raises:
            ShapeError: It returns another number of actions or infos.
            TypeError: It does not return a pair.
        """
        each = len(observations) // num_tasks
        groups = [np.stack(observations[m * each : (m + 1) * each]) for m in range(num_tasks)]
        with self._stream.active(), torch.no_grad():
            result = self.policy.get_actions(groups)
        if not isinstance(result, tuple) or len(result) != 2:
            name = type(self.policy).__name__
            raise TypeError(f"get_actions of {name} must return (actions, agent_infos), got {type(result).__name__}")
        actions = self._of_all("actions", result[0], num_tasks, each)
        if result[1] is None or len(result[1]) == 0:
            return actions, [{} for _ in actions]
        infos = self._of_all("agent_infos", result[1], num_tasks, each)
        return actions, [{name: _own(value) for name, value in dict(info).items()} for info in infos]

    def _of_all(self, name: str, groups: Any, num_tasks: int, each: int) -> list[Any]:
        sizes = [len(group) for group in groups]
        if sizes != [each] * num_tasks:
            raise ShapeError(
                f"{name} of get_actions of {type(self.policy).__name__} must be {num_tasks} lists of {each}, got lists "
                f"of {sizes}"
            )
        return [_own(row) for group in groups for row in group]


def _as_batch(leaf: Any, reference: torch.Tensor | None) -> torch.Tensor:
    batch = torch.as_tensor(leaf)[None]
    return batch if reference is None else batch.to(reference)


def _seed_from(noise: np.ndarray) -> int:
    """A 32-bit seed from two uniform numbers: 16 bits of each."""
    high, low = (min(int(float(value) * 65536), 65535) for value in noise)
    return high << 16 | low


def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function.forward if isinstance(function, nn.Module) else function).parameters
    except (TypeError, ValueError):  # built-ins have no signature
        return {}


def _likely(distribution: torch.distributions.Distribution) -> torch.Tensor:
    if isinstance(distribution, torch.distributions.Categorical):
        return distribution.probs.argmax(dim=-1)
    return distribution.mean


def _as_rows(infos: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The dicts, unchanged, as ``{"rows": (N,) objects}``; empty if all are."""
    if not any(infos):
        return {}
    rows = np.empty(len(infos), dtype=object)
    for i, info in enumerate(infos):
        rows[i] = {name: _own(value) for name, value in info.items()}
    return {INFO_ROWS: rows}


def _own(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone().numpy()
    return value.copy() if isinstance(value, np.ndarray) else value
