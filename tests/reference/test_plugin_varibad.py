"""VariBAD, the plug-in of the examples: the ELBO by hand and in closed form, what acts, and runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import metaroll
from metaroll.plugins import gae, padded_trials, torch_generator
from plugin_sizes import VARIBAD

PLUGINS = Path(__file__).parents[2] / "examples" / "plugins"


@pytest.fixture(scope="module")
def varibad() -> Iterator[ModuleType]:
    sys.path.insert(0, str(PLUGINS))
    yield importlib.import_module("varibad")
    sys.path.remove(str(PLUGINS))


def made(varibad: ModuleType, env: str, **options: Any) -> Any:
    """The learner of an agent."""
    return metaroll.agent(varibad.VARIBAD, env, seed=0, task_seed=3, **{**VARIBAD, **options}).algo


def trials_of(algo: Any, env: str, count: int = 5, max_steps: int | None = None) -> Any:
    def trial() -> metaroll.wrappers.TrialWrapper:
        return metaroll.wrappers.TrialWrapper(metaroll.get_family(env).env_constructor(), VARIBAD["episodes_per_trial"])

    with metaroll.RolloutEngine(trial, algo.policy) as engine:
        return engine.run([metaroll.RolloutPlan(i, (7, 0, i), max_steps=max_steps) for i in range(count)])


def test_the_elbo_by_hand(varibad: ModuleType) -> None:
    """One number of latent, a bandit's trial of two pulls, a decoder that gives ``m`` itself."""
    algo = made(varibad, "bandit-5", latent_size=1, elbo_terms=4)
    with torch.no_grad():
        for parameter in algo.model.parameters():
            parameter.zero_()
        algo.belief.head.bias.copy_(torch.tensor([0.5, float(np.log(0.25))]))  # whatever it sees: N(0.5, 1/16)
    algo.decoder = lambda rows: rows[..., :1]
    trials = torch.zeros((3, 3, 8))
    trials[:, 1:, -2] = torch.tensor([1.0, 0.0])  # rewards
    lengths = torch.tensor([2, 2, 1])
    draws = torch.Generator().set_state(algo.draws.get_state())
    t = (torch.rand((3, 4), generator=draws) * (lengths[:, None] + 1)).long()
    noise = torch.randn((3, 4, 1), generator=draws)[..., 0]
    errors, divergence = algo.elbo_terms(trials, lengths)
    # KL(N(1/2, 1/16) || N(0, 1)) = (1/16 + 1/4 - 1 - ln 1/16) / 2 = 1.04254; none to the same belief one step before.
    np.testing.assert_allclose(divergence.detach(), torch.where(t == 0, 1.0425443611, 0.0), atol=1e-6)
    m = 0.5 + 0.25 * noise
    second = torch.tensor([[1.0], [1.0], [0.0]])  # the last trial has one step
    np.testing.assert_allclose(errors.detach(), (m - 1) ** 2 + second * m**2, rtol=1e-5)
    assert len(t.unique()) == 3, "terms are of all steps, the first and the last observation included"


def test_divergences_are_those_of_torch(varibad: ModuleType) -> None:
    algo = made(varibad, "point-robot")
    trials = torch.randn((4, algo.max_path_length + 1, 6), generator=torch_generator(1))
    lengths = torch.full((4,), algo.max_path_length)
    draws = torch.Generator().set_state(algo.draws.get_state())
    t = (torch.rand((4, 3), generator=draws) * (lengths[:, None] + 1)).long()
    beliefs = varibad.beliefs_along(algo.belief, trials)
    normal = lambda row: torch.distributions.Normal(row[:2], row[2:].exp())  # noqa: E731
    found = algo.elbo_terms(trials, lengths)[1]
    for n in range(4):
        for e, step in enumerate(t[n].tolist()):
            before = beliefs[n, step - 1] if step else torch.zeros(4)
            expected = torch.distributions.kl_divergence(normal(beliefs[n, step]), normal(before)).sum()
            torch.testing.assert_close(found[n, e], expected, rtol=1e-4, atol=1e-6)


def test_a_decoder_sees_what_was_done_and_the_reward_that_followed(varibad: ModuleType) -> None:
    algo = made(varibad, "point-robot")
    trials = trials_of(algo, "point-robot")
    rows, lengths = padded_trials(trials)
    steps, rewards = varibad.decoder_data(torch.from_numpy(rows), algo.num_told)
    assert lengths.tolist() == [40] * 5
    np.testing.assert_allclose(rewards.flatten(), trials.rewards, rtol=1e-6)
    seen, _ = trials.steps_and_final("observations")
    expected = np.concatenate([seen[:, :2], trials.column("actions")], axis=1)
    np.testing.assert_allclose(steps.reshape(-1, 4), expected, rtol=1e-6)


def test_ppo_learns_from_the_beliefs_that_were_acted_on_and_leaves_them_alone(varibad: ModuleType) -> None:
    algo = made(varibad, "point-robot", elbo_steps=0)
    trials = trials_of(algo, "point-robot")
    rows, lengths = padded_trials(trials)
    seen = algo.with_beliefs(trials, rows, lengths).column("observations")
    assert seen.shape == (5 * 41, 2 + 4)
    state = algo.policy.initial_state([None] * 5, [np.random.default_rng(0)] * 5)
    for t in range(41):
        told, following, _ = algo.belief.act(rows[:, t], state, np.zeros((5, 4)), True)
        _, state, infos = algo.policy.act(rows[:, t], state, np.zeros((5, 2), np.float32))
        np.testing.assert_array_equal(state["hidden"], following["hidden"])
        now = seen.reshape(5, 41, 6)[:, t]
        np.testing.assert_allclose(now, np.concatenate([rows[:, t, :2], told], axis=1), atol=1e-5)
        if t < 40:
            acted = trials.column("policy_infos")["mean"].reshape(5, 40, 2)[:, t]
            np.testing.assert_array_equal(acted, infos["mean"])
    before = algo.belief.get_param_values(), algo.learner.policy.get_param_values()
    numbers = algo.update(trials)
    np.testing.assert_array_equal(algo.belief.get_param_values(), before[0])
    assert not np.array_equal(algo.learner.policy.get_param_values(), before[1])
    assert numbers["episodes_per_trial"] == 2.0 and numbers["reward_error"] == 0.0
    algo.improve_beliefs()  # no step of none
    assert len(algo.kept) == 5


def test_public_advantages_by_hand() -> None:
    """delta_0 = 1 + 0.9 * 1 - 1.4 = 0.5, delta_1 = 2 - 1 = 1; A_0 = 0.5 + 0.9 * 0.5 * 1."""
    ends = np.array([False, True])
    found = gae(np.array([1.0, 2.0]), np.array([1.4, 1.0]), terminated=ends, discount=0.9, gae_lambda=0.5)
    np.testing.assert_allclose(found, [0.95, 1.0])


def test_an_adapted_policy_continues_as_in_the_middle_of_a_trial(varibad: ModuleType) -> None:
    algo = made(varibad, "point-robot")
    trial = trials_of(algo, "point-robot", 1)[0]
    first = trial.observations[:21].copy()
    steps = slice(0, 20)
    ends = np.arange(20) == 19
    episode = metaroll.StepSequence(
        observations=first,
        actions=trial.actions[steps],
        rewards=trial.rewards[steps],
        terminated=ends,
        truncated=np.zeros(20, dtype=bool),
    )
    adapted = algo.adapt_policy(algo.get_exploration_policy(), episode)
    state = algo.policy.initial_state([None], [np.random.default_rng(0)])
    for row in trial.observations[:20]:
        _, state, _ = algo.policy.act(row[None], state, np.zeros((1, 2), np.float32))
    np.testing.assert_array_equal(adapted.memory["hidden"], state["hidden"][0])


def test_it_is_trained_by_name_and_resumes(varibad: ModuleType, tmp_path: Path) -> None:
    agent = metaroll.agent(varibad.VARIBAD, "bandit-5", run_dir=tmp_path / "run", evaluate_every=1, **VARIBAD)
    assert "tasks_per_epoch" not in agent.config["algorithm"], "what the row fills is no option"
    agent.learn(epochs=2, progress=False)
    whole = agent.algo.policy.get_param_values()
    again = metaroll.agent(varibad.VARIBAD, "bandit-5", run_dir=tmp_path / "other", evaluate_every=1, **VARIBAD)
    again.learn(epochs=1, progress=False)
    loaded = metaroll.load(tmp_path / "other", algo=varibad.VARIBAD)
    loaded.learn(epochs=1, progress=False)
    np.testing.assert_array_equal(loaded.algo.policy.get_param_values(), whole)
    assert loaded.evaluate(2, progress=False).verdict.word == "no verdict"
