"""Vector environments of the simulated ones, by the names of their classes: for ``gymnasium.make_vec``."""

from __future__ import annotations

import functools
from typing import Any

from gymnasium.vector import AutoresetMode

from metaroll.envs.sims import catalog
from metaroll.rollouts.single.vector_env import SlotsVectorEnv

__all__ = ["vector_of"]


def vector_of(
    class_name: str,
    num_envs: int = 1,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    render_mode: str | None = None,
    **options: Any,
) -> SlotsVectorEnv:
    """``num_envs`` simulations that are stepped as one.

    Args:
        class_name: Of the environment in ``metaroll.envs.sims.catalog``.
        num_envs: How many.
        autoreset_mode: See ``SlotsVectorEnv``.
        render_mode: Only ``None``: draw single environments.
        **options: Arguments of the environment (``max_steps``, ``domain_param``, ``init_space``, ...).
    """
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
