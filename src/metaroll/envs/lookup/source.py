"""From whatever names an environment (an id, a constructor, an instance) to a picklable recipe that makes one."""

from __future__ import annotations

import copy
import difflib
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from metaroll.envs.lookup.registry import TaskFamily, family_names, get_family, own_constructor
from metaroll.envs.sims.registration import sim_constructor, sim_ids
from metaroll.errors import UnknownNameError, unknown_name

__all__ = ["close_made", "env_source", "is_env_instance", "make_env"]


def is_env_instance(source: Any) -> bool:
    """Whether ``source`` is an environment itself, not a recipe for one."""
    if isinstance(source, type):
        return False
    return isinstance(source, gymnasium.Env) or (hasattr(source, "reset") and hasattr(source, "step"))


def env_source(env: Any) -> Callable[[], Any]:
    """A picklable callable that makes environments as ``env`` says.

    Args:
        env: An id (``"point-robot"``, ``"HalfCheetah-v5"``, ``"module:attribute"``), the ``EnvSpec`` of a registered
            environment, a class or function without arguments, or an environment, of which a copy is kept and copies
            are made. A ``gymnasium.vector.VectorEnv`` (or what makes one) will do as well; in this process a given one
            is used itself.
    """
    if isinstance(env, str):
        return _NamedSource(env)
    if isinstance(env, EnvSpec):
        return _NamedSource(env.id, env)
    if isinstance(env, gymnasium.vector.VectorEnv):
        return _SharedSource(env)
    if is_env_instance(env):
        return _CopySource(env)
    if callable(env):
        return env
    if isinstance(env, TaskFamily):
        raise TypeError(
            "env must make environments, got a TaskFamily, whose family.env_constructor does; its tasks "
            "(family.split(), family.samplers()) are the env_update of plans"
        )
    raise TypeError(
        f"env must be an id such as 'point-robot' or 'HalfCheetah-v5', a class or function that makes an environment, "
        f"or an environment, got {env!r} of type {type(env).__name__}"
    )


def make_env(source: Any) -> Any:
    """A new environment (``source`` as in ``env_source``), checked to look like one."""
    env = env_source(source)()
    if not is_env_instance(env) or not hasattr(env, "action_space") or not hasattr(env, "observation_space"):
        raise TypeError(
            f"{source!r} must make an environment with reset, step, observation_space and action_space, "
            f"got {env!r} of type {type(env).__name__}"
        )
    return env


def close_made(source: Any, env: Any) -> None:
    """Close ``env``, which ``source`` has made, unless it is the caller's own."""
    if not isinstance(source, _SharedSource) and env is not source:
        env.close()


class _NamedSource:
    """Makes the environment of a name: our task families first, then ``module:attribute``, then Gymnasium's ids.

    Keeps what is registered under the name here, for workers, which do not know what a script has registered.
    """

    def __init__(self, name: str, spec: EnvSpec | None = None) -> None:
        self.name = name
        self.spec = gymnasium.registry.get(name) if spec is None else spec

    def __call__(self) -> Any:
        if self.name in family_names():
            return get_family(self.name).env_constructor()
        own = own_constructor(self.name)
        if own is not None:
            return own()
        simulator = sim_constructor(self.name)
        if simulator is not None:  # without wrappers, so that many can be stepped as one
            return simulator()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "out of date", "overriding environment": nothing that a rollout needs
            try:
                # The passive checker costs more than many environments do, and only warns.
                spec = self.spec
                source = self.name if spec is None or gymnasium.registry.get(self.name) is spec else spec
                return gymnasium.make(source, disable_env_checker=True)
            except gymnasium.error.Error as error:
                if self.name.rpartition(":")[2] in gymnasium.registry:  # known, but for instance a package is missing
                    raise
                raise self._unknown() from error
            except ModuleNotFoundError as error:
                module = self.name.partition(":")[0]
                if getattr(error.__cause__, "name", None) != module:
                    raise
                raise UnknownNameError(f"unknown environment {self.name!r}: there is no module {module!r}") from error

    def _unknown(self) -> UnknownNameError:
        ours = [*family_names(), *sim_ids()]
        near = difflib.get_close_matches(self.name, [*ours, *gymnasium.registry], n=3, cutoff=0.5)
        return UnknownNameError(f"{unknown_name('environment', self.name, {*ours, *near})}, or any id of Gymnasium")

    def __repr__(self) -> str:
        return repr(self.name)


class _CopySource:
    """Makes deep copies of an environment, from a copy of its own that nobody else changes."""

    def __init__(self, env: Any) -> None:
        self.env = self._copy(env)

    def __call__(self) -> Any:
        return self._copy(self.env)

    @staticmethod
    def _copy(env: Any) -> Any:
        try:
            return copy.deepcopy(env)
        except Exception as error:
            raise TypeError(
                f"env of type {type(env).__name__} cannot be copied ({error}); "
                "pass a function that makes it, for instance lambda: MyEnv(...)"
            ) from error

    def __repr__(self) -> str:
        return f"a copy of {self.env!r}"


class _SharedSource:
    """Gives a vector environment itself (many cannot be copied); another process gets a copy, if it can be pickled."""

    def __init__(self, env: gymnasium.vector.VectorEnv) -> None:
        self.env = env

    def __call__(self) -> Any:
        return self.env

    def __repr__(self) -> str:
        return repr(self.env)
