"""Ids of the simulated environments in Gymnasium's registry.

``import metaroll`` loads this module where Gymnasium has been imported before, the first use of a metaroll name does so
in any case; then ``gymnasium.make("metaroll/Pendulum-v0")`` and ``gymnasium.make_vec`` know the ids.
"""

from __future__ import annotations

from gymnasium.envs.registration import register, registry

from metaroll.envs.sims.catalog import SIMS

__all__: list[str] = []

for entry in SIMS:
    if entry.id not in registry:  # without a limit: horizons are the environments' own, and can be set
        register(
            entry.id,
            entry_point=f"metaroll.envs.sims.catalog:{entry.env_type.__name__}",
            vector_entry_point=f"metaroll.rollouts.single.sim_vectors:{entry.env_type.__name__}",
        )
