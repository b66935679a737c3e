"""The simulated environments in Gymnasium's registry: their ids, and vector environments for ``gymnasium.make_vec``.

``import metaroll`` loads this module where Gymnasium has been imported before, the first use of a metaroll name does so
in any case; then ``gymnasium.make("metaroll/Pendulum-v0")`` and ``gymnasium.make_vec`` know the ids.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register, registry

from metaroll.envs.sims import catalog

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode

    from metaroll.rollouts.single.vector_env import SlotsVectorEnv

__all__ = ["vector_of"]


def vector_of(
    class_name: str,
    num_envs: int = 1,
    autoreset_mode: AutoresetMode | str = "NextStep",
    render_mode: str | None = None,
    **options: Any,
) -> SlotsVectorEnv:
    """``num_envs`` simulations that are stepped as one.

    Args:
        class_name: Class name of the environment in ``metaroll.envs.sims.catalog``.
        num_envs: How many.
        autoreset_mode: See ``SlotsVectorEnv``.
        render_mode: Only ``None``: draw single environments.
        **options: Arguments of the environment (``max_steps``, ``domain_param``, ``init_space``, ...).
    """
    from metaroll.rollouts.single.vector_env import SlotsVectorEnv  # loads Gymnasium's vector environments

    if render_mode is not None:
        raise ValueError(
            f"render_mode must be None, got {render_mode!r}: many simulations at once are not drawn; "
            "gymnasium.make makes one that is, or use vectorization_mode='sync'"
        )
    return SlotsVectorEnv(getattr(catalog, class_name)(**options), num_envs, autoreset_mode)


def __getattr__(name: str) -> Any:
    if name not in catalog.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return functools.partial(vector_of, name)


for entry in catalog.SIMS:
    if entry.id not in registry:  # without a limit: horizons are the environments' own, and can be set
        name = entry.env_type.__name__
        register(
            entry.id,
            entry_point=f"metaroll.envs.sims.catalog:{name}",
            vector_entry_point=f"metaroll.rollouts.single.gymnasium_ids:{name}",
        )
