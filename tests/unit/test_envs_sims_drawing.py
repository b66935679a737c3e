"""Pictures of the simulated systems."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RecordVideo

import metaroll
from metaroll.envs.sims.catalog import SIMS, sim_constructor
from metaroll.envs.sims.drawing import HEIGHT, WIDTH, draw
from metaroll.envs.sims.pendulum import PendulumModel


@pytest.mark.parametrize("name", [entry.short_name for entry in SIMS])
def test_every_system_has_a_picture_that_moves(name: str):
    env = sim_constructor(name)(render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    assert before.shape == (HEIGHT, WIDTH, 3) and before.dtype == np.uint8
    colors = np.unique(before.reshape(-1, 3), axis=0)
    assert len(colors) > 10
    state = env.state
    moved = draw(
        env.model, state + (30.0 if name == "cata" else 0.3), np.zeros(len(env.model.memory_labels)), env.domain_param
    )
    assert (moved[60:] != before[60:]).any(axis=-1).sum() > 50  # not only the numbers at the top


@pytest.mark.parametrize("name", [entry.short_name for entry in SIMS])
def test_the_numbers_of_a_state_fit_into_the_picture(name: str):
    env = sim_constructor(name)()
    state, memory = np.full(len(env.model.state_labels), -1.23e-5), np.zeros(len(env.model.memory_labels))
    picture = draw(env.model, state, memory, env.domain_param)
    assert (picture[:100, -10:] == picture[0, 0]).all()


def test_an_upright_pendulum_is_drawn_above_its_hinge():
    model = PendulumModel()
    pictures = [draw(model, np.array([angle, 0.0]), np.zeros(0), model.nominal) for angle in (0.0, np.pi)]
    rows = [np.flatnonzero((p[:, :, 0] > 190) & (p[:, :, 1] < 90)).mean() // WIDTH for p in pictures]
    assert rows[1] < 200 < rows[0]


@pytest.mark.parametrize("name", [entry.short_name for entry in SIMS])
def test_states_that_are_not_finite_are_left_out(name: str):
    env = sim_constructor(name)()
    shape = (len(env.model.state_labels),)
    for value in (np.nan, np.inf, 1e9):
        memory = np.zeros(len(env.model.memory_labels))
        assert draw(env.model, np.full(shape, value), memory, env.domain_param).shape == (HEIGHT, WIDTH, 3)


def test_record_video_films_a_simulator(tmp_path: Path):
    assert metaroll.sims.QQubeSwingUpEnv  # whoever uses a name of metaroll has its ids
    env = gymnasium.make("metaroll/QQubeSwingUp-v0", render_mode="rgb_array", max_steps=10)
    with RecordVideo(
        env, str(tmp_path / "videos"), episode_trigger=lambda episode: True, disable_logger=True
    ) as filmed:
        filmed.reset(seed=0)
        done = False
        while not done:
            *_, terminated, truncated, _ = filmed.step(np.zeros(1))
            done = terminated or truncated
    (film,) = tmp_path.glob("videos/*.mp4")
    assert film.stat().st_size > 1000
