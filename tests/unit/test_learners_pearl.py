"""PEARL's documented members, its data collection, and the defects that it must not have."""

from __future__ import annotations

import inspect
import math
import pickle
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from pearl_fakes import (
    ACT_DIM,
    HORIZON,
    LATENT_DIM,
    OBS_DIM,
    SPEC,
    FakeRunner,
    ToySampler,
    ToyUpdate,
    make_pearl,
    make_rollout,
    networks,
)

from metaroll.compat.constructors import PEARL
from metaroll.errors import DataError, InvalidValueError, ShapeError, UnknownNameError
from metaroll.learners.base import MetaRLAlgorithm, RLAlgorithm, as_runner
from metaroll.policies.gaussian import TanhGaussianMLPPolicy
from metaroll.policies.networks import MLPEncoder, QFunction
from metaroll.rollouts.single.rollout import rollout
from metaroll.types import EnvSpec, InOutSpec

CONTEXT_DIM = OBS_DIM + ACT_DIM + 1


def weights(algo: PEARL) -> list[torch.Tensor]:
    return [p.detach().clone() for net in algo.networks for p in net.parameters()]


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def same_tree(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_tree(one[k], other[k]) for k in one)
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other


def trained(num_epochs: int = 1, **changes: Any) -> PEARL:
    algo = make_pearl(**changes)
    algo.train(FakeRunner(num_epochs))
    return algo


# ---- documented members ----------------------------------------------------------------------------------------------


def test_pearl_is_a_meta_rl_algorithm():
    """specs/meta.md 2.1, 2.4"""
    assert issubclass(PEARL, MetaRLAlgorithm) and issubclass(MetaRLAlgorithm, RLAlgorithm)
    with pytest.raises(TypeError, match="abstract"):
        MetaRLAlgorithm()
    assert RLAlgorithm.__abstractmethods__ == {"train"}
    assert MetaRLAlgorithm.__abstractmethods__ == {"train", "get_exploration_policy", "adapt_policy"}


def test_documented_order_and_defaults():
    """specs/meta.md 4.1"""
    parameters = inspect.signature(PEARL).parameters
    positional = [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional[:9] == [
        "env", "inner_policy", "qf", "vf", "num_train_tasks", "num_test_tasks", "latent_dim", "encoder_hidden_sizes",
        "test_env_sampler",
    ]  # fmt: skip
    assert positional[-1] == "update_post_train" and len(positional) == 38
    assert parameters["batch_size"].default == 1024 and parameters["optimizer_class"].default is torch.optim.Adam


def test_augment_env_spec_appends_the_latent():
    """specs/meta.md 4.2"""
    spec = PEARL.augment_env_spec(SPEC, 5)
    assert spec.observation_space.shape == (OBS_DIM + 5,) and spec.action_space.shape == (ACT_DIM,)
    assert spec.observation_space.low.min() == -1 and spec.action_space.high.max() == 1
    image = EnvSpec(gymnasium.spaces.Box(0, 1, (4, 3)), gymnasium.spaces.Box(-2, 2, (2, 2)))
    env = SimpleNamespace(observation_space=image.observation_space, action_space=image.action_space)
    assert PEARL.augment_env_spec(env, 1).observation_space.shape == (13,)
    assert PEARL.augment_env_spec(env, 1).action_space.shape == (4,)


@pytest.mark.parametrize(
    ("use_next_obs", "bottleneck", "width", "out"),
    [(False, True, 6, 10), (True, True, 9, 10), (False, False, 6, 5), (True, False, 9, 5)],
)
def test_get_env_spec_of_the_encoder(use_next_obs: bool, bottleneck: bool, width: int, out: int):
    """specs/meta.md 4.2, Q-34"""
    spec = PEARL.get_env_spec(SPEC, 5, "encoder", use_next_obs=use_next_obs, use_information_bottleneck=bottleneck)
    assert isinstance(spec, InOutSpec)
    assert (spec.input_space.shape, spec.output_space.shape) == ((width,), (out,))
    if not use_next_obs and bottleneck:
        default = PEARL.get_env_spec(SPEC, 5, "encoder")
        assert default.input_space.shape == (width,) and default.output_space.shape == (out,)


def test_get_env_spec_of_the_value_function():
    """specs/meta.md 4.2, 9.7"""
    spec = PEARL.get_env_spec(SPEC, 5, "vf")
    assert isinstance(spec, EnvSpec)
    assert (spec.observation_space.shape, spec.action_space.shape) == ((OBS_DIM,), (5,))


def test_get_env_spec_of_another_module_is_an_error():
    """specs/meta.md 4.2"""
    with pytest.raises(UnknownNameError, match="did you mean 'encoder'"):
        PEARL.get_env_spec(SPEC, 5, "encodr")


def test_policy_and_networks():
    """specs/meta.md 4.9"""
    algo = make_pearl()
    encoder, inner, policy, qf1, qf2, vf, target_vf = algo.networks
    assert policy is algo.policy and policy.context_encoder is encoder and policy.policy is inner
    assert equal(list(vf.parameters()), list(target_vf.parameters())) and vf is not target_vf
    assert len({id(net) for net in (qf1, qf2, vf, target_vf)}) == 4
    assert not any(p.requires_grad for p in target_vf.parameters())


def test_public_numbers():
    """specs/meta.md 4.9, Q-40"""
    algo = make_pearl(discount=0.9)
    assert algo.discount == 0.9 and algo.max_path_length == HORIZON
    assert algo.train_tasks == [0, 1, 2] and algo.num_test_tasks == 2


def test_number_of_test_tasks_falls_back_to_the_sampler():
    """specs/meta.md 4.1"""
    assert make_pearl(num_test_tasks=None).num_test_tasks == 3
    sampler = ToySampler()
    sampler.n_tasks = None
    with pytest.raises(ValueError, match="num_test_tasks"):
        make_pearl(num_test_tasks=None, test_env_sampler=sampler)


def test_to_moves_networks_and_optimizer_state():
    """specs/meta.md 4.9"""
    algo = trained()
    before = algo.state_dict()
    algo.to("cpu")
    algo.to()
    assert same_tree(before, algo.state_dict())
    assert {p.device.type for net in algo.networks for p in net.parameters()} == {"cpu"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_to_gpu_and_back():
    """specs/meta.md 4.9"""
    algo = trained()
    before = algo.state_dict()
    algo.to("cuda")
    assert {p.device.type for net in algo.networks for p in net.parameters()} == {"cuda"}
    assert algo.policy.z.device.type == "cuda"
    algo.train(FakeRunner(1))
    adapted = algo.adapt_policy(algo.get_exploration_policy(), make_rollout([1]))
    assert adapted.plan_context()["z_mean"].shape == (LATENT_DIM,)
    algo.to("cpu")
    algo.load_state_dict(before)
    assert same_tree(before, algo.state_dict())
    algo.train(FakeRunner(1))


def test_unknown_seed_is_recorded():
    """specs/meta.md 5.8"""
    algo = make_pearl(seed=None)
    again = make_pearl(seed=algo.seed)
    assert equal(list(algo.networks[0].parameters()), list(again.networks[0].parameters()))


# ---- two Q functions -------------------------------------------------------------------------------------------------


def test_q_functions_differ_at_first_and_after_training():
    """specs/meta.md 4.1, Q-33"""
    algo = make_pearl()
    qf1, qf2 = algo.networks[3:5]
    for _ in range(2):
        pairs = list(zip(qf1.parameters(), qf2.parameters(), strict=True))
        assert all(not torch.equal(a, b) for a, b in pairs if a.dim() > 1)
        algo.train(FakeRunner(1))


def test_a_q_function_that_cannot_be_initialized_anew_is_refused():
    """specs/meta.md 4.1, Q-33"""

    class Bare(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(width, 1))

        def forward(self, *parts: torch.Tensor) -> torch.Tensor:
            return torch.cat(parts, -1) @ self.weight

    width = OBS_DIM + ACT_DIM + LATENT_DIM
    with pytest.raises(ValueError, match="pass an independent network as qf2"):
        make_pearl(qf=Bare(width))
    own = Bare(width)
    assert make_pearl(qf=Bare(width), qf2=own).networks[4] is own
    with pytest.raises(ValueError, match="without common parameters"):
        make_pearl(qf=own, qf2=own)


def test_plain_torch_networks_serve_as_q_function():
    """specs/meta.md 4.1"""

    class Sequential(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(OBS_DIM + ACT_DIM + LATENT_DIM, 4), torch.nn.Linear(4, 1))

        def forward(self, *parts: torch.Tensor) -> torch.Tensor:
            return self.body(torch.cat(parts, -1))

    from metaroll.seeding import isolated_rng

    with isolated_rng(0):
        qf = Sequential()
    algo = make_pearl(qf=qf)
    assert not torch.equal(algo.networks[4].body[0].weight, qf.body[0].weight)


# ---- gradient step ---------------------------------------------------------------------------------------------------


def filled(**changes: Any) -> PEARL:
    algo = make_pearl(**changes)
    algo._collector.collect_initial(as_runner(FakeRunner(1)))
    return algo


def test_encoder_learns_from_kl_and_q_loss_only(monkeypatch: pytest.MonkeyPatch):
    """specs/meta.md 4.6: neither the value loss nor the policy loss has a gradient for the encoder"""
    algo = filled(kl_lambda=0.0)
    encoder = algo.networks[0]
    before = weights(algo)
    # Without the Q loss (its gradient stopped) and the KL term nothing may reach the encoder.
    import metaroll.learners.pearl_update as update

    monkeypatch.setattr(update, "critic_loss", lambda q1, q2, y: (q1.sum() + q2.sum()) * 0.0)
    algo._gradient_step([0, 1])
    assert all(p.grad is None or not p.grad.any() for p in encoder.parameters())
    changed = [not torch.equal(a, b) for a, b in zip(before, weights(algo), strict=True)]
    count = len(list(encoder.parameters()))
    assert not any(changed[:count]) and any(changed[count:])


@pytest.mark.parametrize("kl_lambda", [0.0, 0.1])
def test_encoder_is_trained(kl_lambda: float):
    """specs/meta.md 4.6 steps 3 and 4"""
    algo = filled(kl_lambda=kl_lambda)
    before = [p.detach().clone() for p in algo.networks[0].parameters()]
    algo._gradient_step([0, 1])
    assert not equal(before, list(algo.networks[0].parameters()))


def test_policy_step_leaves_no_gradient_in_q_functions():
    """specs/meta.md 4.6 step 7"""
    algo = filled()
    qf1, qf2 = algo.networks[3:5]
    algo._gradient_step([0, 1])
    after_step = [p.grad.clone() for q in (qf1, qf2) for p in q.parameters()]
    assert all(p.requires_grad for q in (qf1, qf2) for p in q.parameters())
    assert any(g.any() for g in after_step)  # those of the Q loss stand


def test_target_follows_by_tau():
    """specs/meta.md 4.6 step 6"""
    algo = filled(soft_target_tau=0.25)
    vf, target = algo.networks[5:]
    with torch.no_grad():
        for p in target.parameters():
            p.fill_(1.0)
    algo._gradient_step([0, 1])
    for new, value in zip(target.parameters(), vf.parameters(), strict=True):
        torch.testing.assert_close(new, 0.75 + 0.25 * value)


@pytest.mark.parametrize(
    "coefficient", ["policy_mean_reg_coeff", "policy_std_reg_coeff", "policy_pre_activation_coeff"]
)
def test_regularizers_change_the_policy(coefficient: str):
    """specs/meta.md 4.3, Q-35"""
    off = {"policy_mean_reg_coeff": 0.0, "policy_std_reg_coeff": 0.0, "policy_pre_activation_coeff": 0.0}
    gradients = []
    for value in (0.0, 1.0):
        algo = filled(**{**off, coefficient: value})
        algo._gradient_step([0, 1])
        gradients.append([p.grad.clone() for p in algo.networks[1].parameters() if p.grad is not None])
    assert not equal(*gradients)


@pytest.mark.parametrize("use_next_obs", [False, True])
@pytest.mark.parametrize("bottleneck", [False, True])
def test_next_obs_and_bottleneck_modes_train_and_adapt(use_next_obs: bool, bottleneck: bool):
    """specs/meta.md 8, Q-34"""
    algo = make_pearl(
        use_next_obs_in_context=use_next_obs, use_information_bottleneck=bottleneck, num_steps_posterior=6
    )
    runner = FakeRunner(1)
    assert algo.train(runner) == 1.0
    assert (runner.logged[0]["kl"] > 0) == bottleneck
    adapted = algo.adapt_policy(algo.get_exploration_policy(), [make_rollout([1]), make_rollout([2])])
    belief = adapted.plan_context()
    assert belief["z_mean"].shape == (LATENT_DIM,) and bool((belief["z_var"] > 0).all()) == bottleneck


def test_another_seed_gives_another_training():
    """specs/meta.md 5.8"""
    first, second = make_pearl(), make_pearl(seed=2)
    for own, other in zip(first.networks, second.networks, strict=True):
        other.load_state_dict(own.state_dict())
    for algo in (first, second):
        algo.train(FakeRunner(1))
    assert not equal(weights(first), weights(second))


def test_other_optimizers_work_and_make_another_fingerprint():
    """specs/meta.md 4.1"""
    algo = trained(optimizer_class=torch.optim.SGD)
    assert all(torch.isfinite(w).all() for w in weights(algo))
    assert algo.fingerprint() != make_pearl().fingerprint()
    # A configuration file brings numbers back as floats.
    assert make_pearl(reward_scale=2).fingerprint() == make_pearl(reward_scale=2.0).fingerprint()


def test_diverged_losses_are_an_error():
    algo = make_pearl(reward_scale=1e30)
    with pytest.raises(InvalidValueError, match="lower reward_scale"):
        algo.train(FakeRunner(3))


def test_weights_that_the_last_step_broke_are_an_error(monkeypatch: pytest.MonkeyPatch):
    """The losses do not show them yet, and the next snapshot would replace the last good one."""
    algo = make_pearl(num_steps_per_epoch=1)
    step = algo._gradient_step

    def break_weights(tasks: list[int]) -> torch.Tensor:
        metrics = step(tasks)
        next(algo.networks[-1].parameters()).data[0] = torch.nan
        return metrics

    monkeypatch.setattr(algo, "_gradient_step", break_weights)
    with pytest.raises(InvalidValueError, match="weights are no longer finite after 1 gradient steps"):
        algo.train(FakeRunner(1))


# ---- collection ------------------------------------------------------------------------------------------------------


def test_initial_data_of_all_tasks_come_from_one_call_under_the_prior():
    """specs/meta.md 4.4"""
    algo, runner = make_pearl(num_initial_steps=8), FakeRunner(1)
    algo._collector.collect_initial(as_runner(runner))
    assert runner.calls == [{"tasks": [0, 1, 2], "batch_size": 8, "num_rollouts": None, "contexts": [{}] * 3}]
    # 8 steps in episodes of 5: two episodes
    assert [algo._buffers.num_transitions(i) for i in range(3)] == [10, 10, 10]
    assert [algo._buffers.num_context(i) for i in range(3)] == [10, 10, 10]


def test_a_visit_clears_the_context_and_keeps_the_transitions():
    """specs/meta.md 4.4"""
    algo, runner = filled(), FakeRunner(1)
    algo._collector.collect_visits(as_runner(runner), [1])
    # prior: 7 steps -> 2 episodes; extra: 6 steps -> 2 episodes, for the transitions only
    assert algo._buffers.num_transitions(1) == 10 + 10 + 10
    assert algo._buffers.num_context(1) == 10
    assert algo._buffers.num_context(0) == 10 and algo._buffers.num_transitions(0) == 10


def test_finite_rate_begins_under_the_prior_and_infers_after_every_episode():
    """specs/meta.md 4.5"""
    algo, runner = filled(num_steps_posterior=11), FakeRunner(1)
    algo._collector.collect_visits(as_runner(runner), [0, 2])
    prior, *rest = runner.calls
    assert prior["batch_size"] == 7 and prior["contexts"] == [{}, {}]
    # 11 steps: 3 episodes of 5; extra 6 steps: 2 episodes
    assert [call["num_rollouts"] for call in rest] == [1] * 5
    under_prior = [call["contexts"] == [{}, {}] for call in rest]
    assert under_prior == [True, False, False, True, False]
    belief = rest[1]["contexts"][0]
    assert set(belief) == {"z_mean", "z_var"} and belief["z_mean"].shape == (LATENT_DIM,)
    assert not np.array_equal(belief["z_mean"], rest[1]["contexts"][1]["z_mean"])
    assert algo._buffers.num_context(0) == 10 + 15 and algo._buffers.num_transitions(0) == 10 + 10 + 15 + 10


def test_the_posterior_comes_from_the_tasks_own_context():
    """specs/meta.md 4.5"""
    algo, runner = filled(num_steps_posterior=10, num_extra_rl_steps_posterior=0), FakeRunner(1)
    seen: list[tuple[list[int], np.ndarray]] = []
    sample = algo._buffers.sample_context
    algo._buffers.sample_context = lambda tasks, *a: (seen.append((list(tasks), sample(tasks, *a))), seen[-1][1])[1]
    algo._collector.collect_visits(as_runner(runner), [2, 0])
    [(tasks, context)] = seen
    assert tasks == [2, 0] and context.shape == (2, 4, CONTEXT_DIM)
    # rewards of task k lie in [k - 1, k + 1]
    assert (context[0, :, -1] >= 1).all() and (context[1, :, -1] <= 1).all()
    policy = algo.get_exploration_policy()
    with torch.no_grad():
        policy.infer_posterior(torch.from_numpy(context))
    np.testing.assert_allclose(runner.calls[-1]["contexts"][1]["z_mean"], policy.z_means[1].numpy(), rtol=1e-5)


def test_update_post_train_counts_episodes():
    """specs/meta.md 4.5: episodes, not steps; no episode more than the steps ask for"""
    algo = filled(update_post_train=2, num_steps_posterior=24, num_extra_rl_steps_posterior=0)
    runner = FakeRunner(1)
    algo._collector.collect_visits(as_runner(runner), [0])
    # 5 episodes of 5 steps in rounds of 2 + 2 + 1
    assert [call["num_rollouts"] for call in runner.calls[1:]] == [2, 2, 1]
    assert [call["contexts"] == [{}] for call in runner.calls[1:]] == [True, False, False]


def test_short_episodes_do_not_shorten_a_round():
    """specs/meta.md 4.5: with episodes of 2 steps, 3 of them belong to each inference although 9 steps looked like 2"""
    algo = filled(update_post_train=3, num_steps_posterior=9, num_extra_rl_steps_posterior=0)
    runner = FakeRunner(1, lengths={0: 2})
    algo._collector.collect_visits(as_runner(runner), [0])
    posterior = runner.calls[1:]
    assert [call["num_rollouts"] for call in posterior] == [2, 1, 1, 1]  # 4, 6 steps | 8, 10 steps
    assert [call["contexts"] == [{}] for call in posterior] == [True, True, False, False]
    assert posterior[2]["contexts"] is not posterior[1]["contexts"]


def test_tasks_that_are_done_leave_the_round():
    """specs/meta.md 4.5"""
    algo, runner = filled(num_extra_rl_steps_posterior=0, num_steps_posterior=8), FakeRunner(1, lengths={1: 2})
    algo._collector.collect_visits(as_runner(runner), [0, 1])
    # task 0: 2 episodes of 5; task 1: 4 episodes of 2
    assert [call["tasks"] for call in runner.calls[1:]] == [[0, 1], [0, 1], [1], [1]]


def test_a_task_drawn_twice_is_visited_twice_in_order():
    """specs/meta.md 4.4: the second visit clears the context of the first"""
    algo, runner = filled(), FakeRunner(1)
    algo._collector.collect_visits(as_runner(runner), [2, 0, 2])
    assert [call["tasks"] for call in runner.calls] == [[2, 0], [2, 0], [2, 0], [2], [2], [2]]
    assert algo._buffers.num_context(2) == 10 and algo._buffers.num_context(0) == 10
    assert algo._buffers.num_transitions(2) == 10 + 2 * 20 and algo._buffers.num_transitions(0) == 10 + 20


def test_rows_hold_the_true_final_observation_and_terminations_only():
    """specs/meta.md 8, Q-39, Q-41"""
    algo = make_pearl(use_next_obs_in_context=True)
    for terminated in (False, True):
        rollout = make_rollout([3], terminated=terminated)
        algo._buffers.add([0], [[rollout]], to_context=True)
        rows = algo._buffers.state_dict()["transitions"]["0"]
        drawn = algo._buffers.sample_transitions([0], 400, np.random.default_rng(0))[0]
        batch = algo._layout.split(torch.from_numpy(drawn))
        last = (batch.observations == torch.from_numpy(rollout.observations[-2])).all(dim=1)
        assert last.any() and rows
        assert (batch.next_observations[last] == torch.from_numpy(rollout.observations[-1])).all()
        assert bool(batch.terminated[last].any()) == terminated
        assert not batch.terminated[~last].any()


def test_a_time_limit_at_the_terminal_step_keeps_the_termination():
    """specs/meta.md 8, Q-41"""
    algo = make_pearl()
    rollout = make_rollout([3], terminated=True)
    rollout.truncated[-1] = True
    algo._buffers.add([0], [[rollout]], to_context=True)
    drawn = algo._buffers.sample_transitions([0], 200, np.random.default_rng(0))
    assert drawn[..., -1].max() == 1.0


def test_context_reward_key_changes_the_context_only():
    """specs/meta.md 7.2: sparse reward in the context, dense reward for actor and critic"""
    algo = filled(context_reward_key="sparse_reward")
    generator = np.random.default_rng(0)
    context = algo._buffers.sample_context([2], 50, generator)
    assert set(context[0, :, -1]) == {12.0}
    rewards = algo._buffers.sample_transitions([2], 50, generator)[0, :, OBS_DIM + ACT_DIM]
    assert (abs(rewards - 2) <= 1).all()
    rows = make_rollout([1], task=2)
    first = algo.adapt_policy(algo.get_exploration_policy(), rows).plan_context()
    rows.rewards[:] = 0  # not read
    assert np.array_equal(
        first["z_mean"], algo.adapt_policy(algo.get_exploration_policy(), rows).plan_context()["z_mean"]
    )


def test_missing_context_reward_names_those_that_exist():
    with pytest.raises(DataError, match="sparse_reward"):
        filled(context_reward_key="sparse")


def test_a_reward_that_is_no_number_enters_no_buffer_and_no_belief():
    """The engine checks observations, rewards and actions, not infos."""
    for key in (None, "sparse_reward"):
        algo, rollout = make_pearl(context_reward_key=key), make_rollout([1])
        (rollout.rewards if key is None else rollout.env_infos[key])[2] = np.nan
        with pytest.raises(DataError, match="NaN or Inf at step 2"):
            algo._buffers.add([0], [[rollout]], to_context=True)
        assert algo._buffers.num_transitions(0) == algo._buffers.num_context(0) == 0
        with pytest.raises(DataError, match="exploration_trajectories holds NaN or Inf at step 2"):
            algo.adapt_policy(algo.get_exploration_policy(), rollout)
    rollout.env_infos["sparse_reward"] = np.zeros((HORIZON, 2))
    with pytest.raises(ShapeError, match=r"\(5, 2\)"):
        algo.adapt_policy(algo.get_exploration_policy(), rollout)


# ---- training loop ---------------------------------------------------------------------------------------------------


def test_train_logs_evaluates_and_returns_the_last_meta_test_return():
    """specs/meta.md 4.4, 9.15, Q-36"""
    algo, runner = make_pearl(), FakeRunner(3)
    assert algo.train(runner) == 3.0
    assert [sampler for _, sampler in runner.evaluations] == [algo.test_env_sampler] * 3
    assert all(evaluated is algo for evaluated, _ in runner.evaluations)
    assert len(runner.logged) == 3 and all(math.isfinite(v) for row in runner.logged for v in row.values())
    assert {"qf_loss", "vf_loss", "policy_loss", "kl"} <= set(runner.logged[0])
    # initial data once: every epoch after it begins with the visits of two drawn tasks
    assert [call["batch_size"] for call in runner.calls].count(8) == 1


def test_evaluate_every():
    algo, runner = make_pearl(evaluate_every=2), FakeRunner(5)
    assert algo.train(runner) == 2.0
    never = make_pearl(evaluate_every=0)
    assert never.train(FakeRunner(2)) is None


def test_belief_is_the_prior_after_an_epoch():
    """specs/meta.md 4.4"""
    algo = trained()
    assert algo.policy.z_means.shape == (1, LATENT_DIM)
    assert not algo.policy.z_means.any() and (algo.policy.z_vars == 1).all()


# ---- adaptation ------------------------------------------------------------------------------------------------------


def test_exploration_policies_are_independent_and_begin_with_the_prior():
    """specs/meta.md 4.7, Q-30"""
    algo = trained()
    first, second = algo.get_exploration_policy(), algo.get_exploration_policy()
    assert np.array_equal(first.acting_parameters(), algo.policy.acting_parameters())
    adapted = algo.adapt_policy(first, make_rollout([1]))
    assert second.z_means.abs().sum() == 0 and algo.policy.z_means.abs().sum() == 0
    assert adapted.z_means.abs().sum() > 0
    for p in adapted.parameters():
        p.data.zero_()
    assert algo.policy.acting_parameters().any() and second.acting_parameters().any()


def test_many_exploration_policies_are_those_that_are_asked_for_one_by_one():
    one_by_one, at_once = trained(), trained()
    alone = [one_by_one.get_exploration_policy() for _ in range(3)]
    together = at_once.get_exploration_policies(3)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)
    adapted = at_once.adapt_policies(together[:2], [make_rollout([1]), make_rollout([2])])
    expected = one_by_one.adapt_policies(alone[:2], [make_rollout([1]), make_rollout([2])])
    for one, other in zip(expected, adapted, strict=True):
        torch.testing.assert_close(one.plan_context(), other.plan_context(), rtol=0, atol=0)
    assert together[2].plan_context() is None or not together[2].z_means.any()
    for p in adapted[0].parameters():
        p.data.zero_()
    assert at_once.policy.acting_parameters().any()


def test_adapt_policy_infers_the_posterior_of_all_steps():
    """specs/meta.md 4.7"""
    algo = trained()
    rollouts = [make_rollout([1]), make_rollout([2], 3)]
    adapted = algo.adapt_policy(algo.get_exploration_policy(), rollouts)
    rows = np.concatenate(
        [
            np.concatenate([r.observations[:-1], r.actions, r.rewards[:, None].astype(np.float32)], axis=1)
            for r in rollouts
        ]
    )
    expected = algo.get_exploration_policy()
    with torch.no_grad():
        expected.infer_posterior(torch.from_numpy(rows.astype(np.float32))[None])
    belief = adapted.plan_context()
    np.testing.assert_allclose(belief["z_mean"], expected.z_means[0].numpy(), rtol=1e-5)
    np.testing.assert_allclose(belief["z_var"], expected.z_vars[0].numpy(), rtol=1e-5)


@pytest.mark.parametrize("use_next_obs", [False, True])
def test_adapt_policy_takes_every_form_of_trajectory(use_next_obs: bool):
    """specs/meta.md 4.7, 5.1"""
    from metaroll.data.paths import TrajectoryBatch
    from metaroll.data.step_sequence import StepSequence

    algo = make_pearl(use_next_obs_in_context=use_next_obs)
    rollouts = [make_rollout([1], terminated=True), make_rollout([2], 3)]
    forms = [
        rollouts,
        tuple(rollouts),
        StepSequence.concat(rollouts),
        TrajectoryBatch.from_rollouts(SPEC, rollouts),
        [[rollouts[0]], rollouts[1]],
    ]
    beliefs = [algo.adapt_policy(algo.get_exploration_policy(), form).plan_context() for form in forms]
    assert all(np.array_equal(b["z_mean"], beliefs[0]["z_mean"]) for b in beliefs)
    changed = [make_rollout([1]), make_rollout([2], 3)]
    changed[0].observations[-1] += 1  # the final observation is in the context only as a next observation
    new = algo.adapt_policy(algo.get_exploration_policy(), changed).plan_context()
    assert np.array_equal(new["z_mean"], beliefs[0]["z_mean"]) != use_next_obs


def test_an_adapted_policy_can_be_adapted_again():
    """specs/meta.md 4.7 (oyster's protocol): the result is that of a fresh exploration policy"""
    algo = trained()
    assert algo.adapts_again and not MetaRLAlgorithm.adapts_again
    rollouts = [make_rollout([1]), make_rollout([2])]
    once = algo.adapt_policy(algo.get_exploration_policy(), rollouts)
    again = algo.adapt_policy(algo.adapt_policy(algo.get_exploration_policy(), rollouts[0]), rollouts)
    assert same_tree(once.plan_context(), again.plan_context())
    assert np.array_equal(once.acting_parameters(), again.acting_parameters())


def test_adapt_policy_refuses_what_it_cannot_read():
    algo = make_pearl()
    with pytest.raises(TypeError, match="exploration_trajectories"):
        algo.adapt_policy(algo.get_exploration_policy(), 3)
    with pytest.raises(ValueError, match="at least one step"):
        algo.adapt_policy(algo.get_exploration_policy(), [])
    wide = EnvSpec(gymnasium.spaces.Box(-1, 1, (OBS_DIM + 1,)), SPEC.action_space)
    other = make_pearl(env_spec=wide, **_networks_for(wide))
    with pytest.raises(ShapeError, match="another environment"):
        other.adapt_policy(other.get_exploration_policy(), make_rollout([1]))


def _networks_for(spec: EnvSpec) -> dict[str, Any]:
    from metaroll.policies.gaussian import TanhGaussianMLPPolicy

    augmented = PEARL.augment_env_spec(spec, LATENT_DIM)
    return {
        "inner_policy": TanhGaussianMLPPolicy(augmented, hidden_sizes=(4,)),
        "qf": QFunction(augmented, hidden_sizes=(4,)),
        "vf": QFunction(PEARL.get_env_spec(spec, LATENT_DIM, "vf"), hidden_sizes=(4,)),
    }


# ---- saving ----------------------------------------------------------------------------------------------------------


def pickled(algo: PEARL) -> PEARL:
    return pickle.loads(pickle.dumps(algo))


def in_another(algo: PEARL) -> PEARL:
    other = make_pearl()
    other.load_state_dict(algo.state_dict())
    return other


def back_in_time(algo: PEARL) -> PEARL:
    """What was collected after the snapshot is forgotten."""
    saved = algo.state_dict()
    algo.train(FakeRunner(1))
    algo.load_state_dict(saved)
    return algo


@pytest.mark.parametrize("restored", [in_another, back_in_time, pickled])
def test_without_replay_data_initial_data_are_collected_again(restored: Any):
    """specs/meta.md 4.9"""
    algo = trained()
    before, state = weights(algo), algo.state_dict()
    again, runner = restored(algo), FakeRunner(2, start=1)
    assert again._buffers.empty_tasks == [0, 1, 2]
    assert equal(weights(again), before) and same_tree(again.state_dict(), state)
    again.train(runner)
    assert runner.calls[0]["batch_size"] == 8 and runner.calls[0]["tasks"] == [0, 1, 2]


def test_replay_data_of_another_number_of_tasks_are_refused():
    two = make_pearl(env=[ToyUpdate(0), ToyUpdate(1)], num_train_tasks=2)
    with pytest.raises(ValueError, match="3 tasks"):
        two.load_buffers_state_dict(trained().buffers_state_dict())


# ---- bad arguments ---------------------------------------------------------------------------------------------------


MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"num_train_tasks": 4}, ValueError, "env must hold"),
    ({"env": []}, TypeError, "env must be"),
    ({"discount": 1.5}, ValueError, "discount"),
    ({"num_steps_prior": 0}, ValueError, "num_steps_prior .* num_steps_posterior=0"),
    ({"embedding_mini_batch_size": 2}, ValueError, "embedding_mini_batch_size .* embedding_batch_size"),
    (
        {"embedding_mini_batch_size": 3},
        ValueError,
        "embedding_batch_size .* multiple|multiple .* embedding_mini_batch_size",
    ),
    ({"replay_buffer_size": HORIZON - 1}, ValueError, "replay_buffer_size"),
    ({"memory_limit": 1000}, ValueError, "memory_limit=1,000; set replay_buffer_size to at most"),
    ({"env_spec": EnvSpec(SPEC.observation_space, gymnasium.spaces.Discrete(2))}, ValueError, "continuous actions"),
    (networks(latent_dim=LATENT_DIM + 1), ValueError, "qf .* PEARL.augment_env_spec"),
    ({"vf": networks(latent_dim=2)["vf"]}, ValueError, "vf .* PEARL.get_env_spec"),
    ({"inner_policy": networks(latent_dim=2)["inner_policy"]}, ValueError, "inner_policy .* PEARL.augment_env_spec"),
]


@pytest.mark.parametrize(("changes", "error", "argument"), MISTAKES)
def test_mistakes(changes: dict[str, Any], error: type[Exception], argument: str):
    with pytest.raises(error, match=argument):
        make_pearl(**changes)


def test_memory_is_estimated_before_anything_is_allocated():
    algo = make_pearl(replay_buffer_size=10**9)
    # 3 tasks x 1e9 rows of (3 + 2 + 1 + 3 + 1) + (3 + 2 + 1) float32
    assert algo.memory_when_full >= 3 * 10**9 * 16 * 4
    assert algo._buffers.nbytes < 10**6


def test_memory_of_a_run_is_that_of_its_steps():
    """Not that of buffers of a million transitions, which a short run never fills."""
    algo = make_pearl(replay_buffer_size=10**9, num_epochs=40)
    algo.train(FakeRunner(40))
    assert algo._buffers.nbytes <= algo.memory_when_full < 10**6
    assert algo.fingerprint() == make_pearl(replay_buffer_size=10**9).fingerprint()
    limit = algo.memory_when_full
    make_pearl(replay_buffer_size=10**9, num_epochs=40, memory_limit=limit)
    with pytest.raises(ValueError, match=f"for 4000 epochs .* memory_limit={limit:,}"):
        make_pearl(replay_buffer_size=10**9, num_epochs=4000, memory_limit=limit)


class RememberingEncoder(MLPEncoder):
    """Counts what PEARL asks of a recurrent encoder."""

    recurrent = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.events: list[str] = []

    def reset(self, do_resets: Any = None) -> None:
        self.__dict__.setdefault("events", []).append("reset")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.events.append(f"encode {x.shape[1]}")
        return super().forward(x)

    def detach_hidden(self) -> None:
        self.events.append("detach")


def test_recurrent_encoders_read_their_context_in_slices():
    """specs/meta.md 4.6: one update per slice, nothing flows back from one slice into the one before"""
    algo = filled(encoder_class=RememberingEncoder, embedding_mini_batch_size=2)
    encoder = algo.networks[0]
    encoder.events.clear()
    algo._gradient_step([0, 1])
    assert encoder.events == ["reset", "encode 2", "detach", "encode 2", "detach"]


# ---- bounds of actions -----------------------------------------------------------------------------------------------


class Wide(gymnasium.Env):
    """Shows the last action; moves in [-30, 30] and [0, 10]."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBS_DIM,))
    action_space = gymnasium.spaces.Box(np.array([-30.0, 0.0], np.float32), np.array([30.0, 10.0], np.float32))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(OBS_DIM, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(OBS_DIM, np.float32), 0.0, False, False, {}


def test_pearl_acts_within_the_bounds_of_the_environment_and_learns_in_its_own_units():
    algo = make_pearl(env_spec=EnvSpec.from_env(Wide()))
    made = rollout(Wide(), algo.get_exploration_policy(), max_steps=200, seed=0)
    assert Wide.action_space.contains(made.actions[0]) and made.actions[:, 1].min() >= 0.0
    assert made.actions[:, 0].max() > 10.0 and made.actions[:, 0].min() < -10.0 and made.actions[:, 1].max() > 7.0
    algo._buffers.add([0], [[made]], to_context=True)
    kept = algo._buffers.sample_transitions([0], 500, np.random.default_rng(0))[0, :, OBS_DIM : OBS_DIM + ACT_DIM]
    assert np.abs(kept).max() <= 1.0 + 1e-6 and kept[:, 1].min() < -0.5
    seen = algo._buffers.sample_context([0], 500, np.random.default_rng(0))[0, :, OBS_DIM : OBS_DIM + ACT_DIM]
    np.testing.assert_array_equal(seen, kept)
    belief = algo.adapt_policy(algo.get_exploration_policy(), made).plan_context()
    rows = torch.from_numpy(algo._buffers._contexts[0].sample_path(np.random.default_rng(0))["transitions"])
    np.testing.assert_allclose(belief["z_mean"], algo.policy.posterior(rows[None])[0][0].detach(), rtol=1e-4)
    assert make_pearl().fingerprint() == make_pearl(env_spec=SPEC).fingerprint() != algo.fingerprint()


def test_an_inner_policy_that_scales_by_itself_is_refused():
    wide = EnvSpec.from_env(Wide())
    space = gymnasium.spaces.Box(-1.0, 1.0, (OBS_DIM + LATENT_DIM,))
    with pytest.raises(ValueError, match="augment_env_spec"):
        make_pearl(env_spec=wide, inner_policy=TanhGaussianMLPPolicy(EnvSpec(space, wide.action_space), (8,)))


def test_many_tasks_are_adapted_to_with_one_forward_of_the_encoder(monkeypatch):
    """Contexts of other lengths in each task; beliefs are those of the loop up to rounding."""
    algo = trained()
    batches = [[make_rollout([task, k], 2 + task, task) for k in range(1 + task % 3)] for task in range(5)]
    one_by_one = [algo.adapt_policy(algo.get_exploration_policy(), batch) for batch in batches]
    calls: list[tuple[int, ...]] = []
    forward = MLPEncoder.forward
    monkeypatch.setattr(MLPEncoder, "forward", lambda self, x: (calls.append(tuple(x.shape)), forward(self, x))[1])
    together = algo.adapt_policies([algo.get_exploration_policy() for _ in batches], batches)
    assert calls == [(1, sum(len(rollout) for batch in batches for rollout in batch), CONTEXT_DIM)]
    for one, other in zip(one_by_one, together, strict=True):
        assert np.array_equal(one.acting_parameters(), other.acting_parameters())
        for name, value in one.plan_context().items():
            np.testing.assert_allclose(other.plan_context()[name], value, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(other.z, one.z)


def test_tasks_whose_policies_differ_are_adapted_to_one_by_one():
    algo, other = trained(), trained()
    batch = [make_rollout([1])]
    strange = other.get_exploration_policy()
    with torch.no_grad():
        for parameter in strange.context_encoder.parameters():
            parameter.mul_(2.0)
    found = algo.adapt_policies([algo.get_exploration_policy(), strange], [batch, batch])
    assert not np.allclose(found[0].plan_context()["z_mean"], found[1].plan_context()["z_mean"])


def test_rows_are_written_over_the_end_of_the_ring_and_in_several_turns():
    """Two paths that do not fit together, and one that begins anew: the same rows as path by path."""
    algo = make_pearl(replay_buffer_size=7, max_path_length=5)
    rollouts = [make_rollout([k], length) for k, length in enumerate((5, 4, 3, 2))]
    steps = algo._buffers.add([1, 2], [rollouts, []], to_context=True)
    one_by_one = make_pearl(replay_buffer_size=7, max_path_length=5)
    for one in rollouts:
        one_by_one._buffers.add([1], [[one]], to_context=True)
    assert steps == [14, 0]
    assert same_tree(algo._buffers.state_dict(), one_by_one._buffers.state_dict())
    rows = algo._buffers.state_dict()["transitions"]["1"]["data"]["transitions"]
    for place, path, step in ((2, 2, 0), (4, 2, 2), (5, 3, 0), (6, 3, 1)):  # rows 9, 11, 12, 13 of 14
        assert np.array_equal(rows[place][:OBS_DIM], rollouts[path].observations[step])
        assert np.array_equal(rows[place][-1 - OBS_DIM : -1], rollouts[path].observations[step + 1])
