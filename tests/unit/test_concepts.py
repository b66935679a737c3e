"""One name for each concept in all algorithms, and an answer for each name of another library."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest

import metaroll
from metaroll import configs
from metaroll.concepts import CONCEPTS, concept_names, concepts_named
from metaroll.config import ConfigField, options_of
from metaroll.configs import EngineConfig, EstimatorConfig, InferenceOptions, PEARLConfig
from metaroll.configs.table import parts_of_algorithm, run_options
from metaroll.errors import UnknownNameError, UsageError, in_shell
from metaroll.lab.cli.options import renamed_flags
from metaroll.option_names import near_options, understood
from metaroll.training.algorithms.registry import ALGORITHM_NAMES

ALL_NAMES = sorted({option.name for algo in ALGORITHM_NAMES for option in run_options(algo)})

SB3: dict[str, tuple[str, ...]] = {
    "PPO": (
        *("learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "clip_range", "clip_range_vf"),
        *("normalize_advantage", "ent_coef", "vf_coef", "max_grad_norm", "use_sde", "sde_sample_freq", "target_kl"),
        *("rollout_buffer_class", "rollout_buffer_kwargs"),
    ),
    "SAC, TD3, DDPG": (
        *("learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "gamma", "train_freq"),
        *("gradient_steps", "action_noise", "replay_buffer_class", "replay_buffer_kwargs", "optimize_memory_usage"),
        *("n_steps", "ent_coef", "target_update_interval", "target_entropy", "use_sde", "use_sde_at_warmup"),
        *("policy_delay", "target_policy_noise", "target_noise_clip"),
    ),
    "DQN": ("exploration_fraction", "exploration_initial_eps", "exploration_final_eps", "max_grad_norm"),
    "TQC, ARS": ("top_quantiles_to_drop_per_net", "n_delta", "n_top", "delta_std", "zero_policy", "n_eval_episodes"),
    "all": ("policy", "policy_kwargs", "stats_window_size", "tensorboard_log", "verbose", "seed", "device", "n_envs"),
}
SB3_NAMES = sorted({name for names in SB3.values() for name in names} - {"zero_policy"})

TAKEN: dict[str, dict[str, str]] = {
    "ppo": {
        "n_epochs": "num_passes",
        "gamma": "discount",
        "clip_range_vf": "value_clip_range",
        "normalize_advantage": "normalize_advantages",
        "ent_coef": "entropy_coeff",
        "vf_coef": "value_coeff",
        "lr": "learning_rate",
    },
    "sac": {
        "learning_rate": "policy_lr qf_lr temperature_lr",
        "buffer_size": "replay_size",
        "learning_starts": "warmup_steps random_steps",
        "gamma": "discount",
        "n_steps": "n_step",
        "ent_coef": "temperature",
        "n_envs": "num_envs",
    },
    "td3": {"target_policy_noise": "smoothing_std", "target_noise_clip": "smoothing_clip", "tau": "tau"},
    "dqn": {
        "learning_rate": "learning_rate",
        "exploration_initial_eps": "max_epsilon",
        "exploration_final_eps": "min_epsilon",
        "buffer_size": "replay_size",
    },
    "tqc": {"top_quantiles_to_drop_per_net": "dropped_atoms"},
    "ars": {"n_delta": "num_directions", "n_top": "num_best", "delta_std": "sigma", "learning_rate": "learning_rate"},
    "pearl": {
        "replay_buffer_size": "replay_size",
        "soft_target_tau": "tau",
        "num_initial_steps": "warmup_steps",
        "num_steps_per_epoch": "gradient_steps",
        "num_tasks_sample": "tasks_per_epoch",
        "n_exploration_traj": "num_adaptation_episodes",
        "n_test_rollouts": "num_episodes",
        "max_path_length": "max_steps",
        "learning_rate": "policy_lr qf_lr vf_lr context_lr",
    },
    "cem": {"n_samples": "population", "init_std": "init_sigma"},
    "cmaes": {"sigma0": "init_sigma", "popsize": "population"},
    "maml": {"fast_lr": "inner_lr", "adapt_steps": "num_inner_steps", "meta_bsz": "meta_batch_size"},
    "rsac": {"min_buffer_size": "warmup_steps", "rollout_batch_size": "num_envs", "n_train_steps": "gradient_steps"},
}


def test_the_table_is_one_table() -> None:
    """Every concept has a name of its own, and knows no name as taken and answered."""
    assert len({concept.name for concept in CONCEPTS}) == len(CONCEPTS)
    for concept in CONCEPTS:
        assert not concept.taken & set(concept.near), concept.name
        assert concept.fields or concept.in_python or concept.absent, concept.name


@pytest.mark.parametrize("algo", ALGORITHM_NAMES)
def test_a_concept_has_one_name_in_all_algorithms(algo: str) -> None:
    """No option is called by a name that stands for the field of a concept elsewhere."""
    names = {option.name for option in run_options(algo)}
    # A foreign name may be the field of another concept: sigma of pycma, init_std of CEM (here of a policy's actions).
    fields = {"init_std"} | {field for concept in CONCEPTS for field in concept.fields}
    for concept in CONCEPTS:
        assert not names & (concept.taken - fields), concept.name


def test_every_field_of_a_concept_is_an_option_somewhere() -> None:
    of_commands = {"from_epoch"}
    others = (EngineConfig, EstimatorConfig, InferenceOptions)
    of_others = {option.name for kind in others for option in options_of(kind)}
    assert {field for concept in CONCEPTS for field in concept.fields} <= {*ALL_NAMES, *of_commands, *of_others}


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("training_batch_size", "batch_size"),
        ("max_num_epochs", "max_epochs"),
        ("learning_rate", "learning_rate"),
        ("stop_after_epochs", "stop_after_epochs"),
        ("validation_fraction", "validation_fraction"),
    ],
)
def test_names_of_sbi_are_taken_where_posteriors_are_learned(name: str, field: str) -> None:
    value = 0.3 if field == "validation_fraction" else 3
    assert getattr(metaroll.configs.EstimatorConfig(**{name: value}), field) == value


def test_one_option_has_one_meaning() -> None:
    """Of the same name, the kind, and whether there may be many, are the same in all algorithms."""
    kinds: dict[str, set[Any]] = {}
    for algo in ALGORITHM_NAMES:
        for option in run_options(algo):
            kinds.setdefault(option.name, set()).add((option.kind, option.many))
    assert {name: kind for name, kind in kinds.items() if len(kind) > 1} == {}


@pytest.mark.parametrize("algo", sorted(TAKEN))
def test_names_that_mean_the_same_are_taken(algo: str) -> None:
    for name, ours in TAKEN[algo].items():
        assert understood({name: 1}, run_options(algo))[0] == dict.fromkeys(ours.split(), 1), name


@pytest.mark.parametrize("algo", ALGORITHM_NAMES)
def test_every_name_of_stable_baselines3_is_taken_or_answered(algo: str) -> None:
    options = run_options(algo)
    names = {option.name for option in options}
    for name in SB3_NAMES:
        values, _ = understood({name: 1}, options)
        if set(values) <= names:
            assert name in names or any(name in concept.taken for concept in concepts_named(name))
            continue
        answer = near_options(name, "", names)
        assert answer, name
        if answer.startswith("did you mean"):  # what is meant is there, and is no accident of letters
            fields = {field for concept in concepts_named(name) for field in concept.fields}
            assert any(f"{field}=" in answer for field in fields & names), name


def test_a_name_that_may_mean_two_things_is_answered_with_both() -> None:
    with pytest.raises(UnknownNameError, match=r"'lr'; did you mean learning_rate=\.\.\. or inner_lr=\.\.\.\?"):
        metaroll.agent("maml", "point-navigation", lr=0.1)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("verbose", "did you mean progress="),
        ("num_steps", "did you mean env_steps="),
        ("population", r"it is an option of metaroll\.agent\(algo, env, population="),
        ("nonsense", "there are env_steps, epochs, callbacks, progress"),
    ],
)
def test_what_is_no_argument_of_learn_is_answered(name: str, answer: str) -> None:
    with pytest.raises(TypeError, match=f"^learn has no argument '{name}': {answer}"):
        metaroll.agent("cem", "CartPole-v1").learn(**{name: 3})  # pyright: ignore[reportArgumentType]


def test_options_have_no_name_twice_within_an_algorithm() -> None:
    for algo in ALGORITHM_NAMES:
        for config in parts_of_algorithm(algo):
            names = [field.name for field in dataclasses.fields(config)]
            assert len(names) == len(set(names)) == len(options_of(config)), (algo, config)


def test_auto_of_stable_baselines3_means_what_is_none_here() -> None:
    learned = configs.SACConfig(ent_coef="auto", target_entropy="auto")
    assert (learned.temperature, learned.target_entropy) == (None, None)
    assert metaroll.agent("sac", "Pendulum-v1", ent_coef="auto").config["algorithm"]["temperature"] is None
    assert renamed_flags(["--ent-coef=auto"], run_options("sac"))[0] == ["--temperature=None"]
    assert renamed_flags(["--ent-coef", "auto", "--seed", "1"], run_options("sac"))[0][:2] == ["--temperature", "None"]
    with pytest.raises(ValueError, match=r"^ent_coef must .*got 'auto_0\.1': .* init_temperature$"):
        configs.SACConfig(ent_coef="auto_0.1")
    with in_shell(), pytest.raises(UsageError, match=r"^--ent-coef must .*got 'auto_0\.1': .* --init-temperature$"):
        renamed_flags(["--ent-coef", "auto_0.1"], run_options("sac"))
    for text in ("automatic", "foo"):
        with pytest.raises(ValueError, match=f"ent_coef must .*'auto', got '{text}'$"):
            configs.SACConfig(ent_coef=text)
    with pytest.raises(TypeError, match=r"ent_coef must .*got 'auto'"):
        configs.PPOConfig(ent_coef="auto")


@pytest.mark.parametrize(
    "take",
    [
        lambda: renamed_flags(["--steps-per-epoch", "400"], run_options("sac"))[0][0].replace("--", ""),
        lambda: metaroll.agent("sac", "Pendulum-v1", steps_per_epoch=400).config["algorithm"]["cycles_per_epoch"],
    ],
)
def test_of_a_documented_name_that_is_another_option_elsewhere_is_warned(take: Any) -> None:
    with pytest.warns(
        DeprecationWarning, match="steps_per_epoch.* is called cycles_per_epoch.* environment steps of an epoch"
    ):
        assert take() in ("cycles-per-epoch", 400)
    metaroll.agent("ppo", "Pendulum-v1", steps_per_epoch=400)  # its own option
    metaroll.agent("sac", "Pendulum-v1", n_train_steps=9)  # means the same wherever it is understood


def test_a_name_for_several_options_counts_where_one_of_them_does() -> None:
    agent = metaroll.agent("sac", "Pendulum-v1", ent_coef=0.1, learning_rate=0.002)
    values = agent.config["algorithm"]
    assert (values["temperature"], values["policy_lr"], values["qf_lr"]) == (0.1, 0.002, 0.002)
    with pytest.raises(ValueError, match=r"temperature_lr=0\.002 .*temperature .*0\.1"):
        metaroll.agent("sac", "Pendulum-v1", temperature=0.1, temperature_lr=0.002)


@pytest.mark.parametrize(
    ("algo", "name", "answer"),
    [
        ("ppo", "buffer_size", "there is no replay buffer"),
        ("ppo", "n_steps", "did you mean steps_per_epoch="),
        ("ppo", "learning_starts", "learning starts with the first epoch"),
        ("hill-climbing", "learning_rate", "nothing is learned by gradient steps here"),
        ("td3", "ent_coef", "there is no weight of the entropy here"),
        ("dqn", "exploration_fraction", "did you mean epsilon_steps="),
        ("dqn", "target_update_interval", "did you mean target_update_steps="),
        ("td3", "action_noise", "did you mean exploration_noise="),
        ("sac", "action_noise", "the policy itself explores"),
        ("sac", "replay_buffer_class", "priorities"),
        ("sac", "train_freq", "did you mean update_to_data="),
        ("sac", "use_sde", "there is no gSDE"),
        ("sac", "polyak", "did you mean tau="),
        ("sac", "num_steps_per_epoch", "did you mean gradient_steps="),
        ("hill-climbing", "noise_std", "did you mean init_sigma="),
        ("sac", "optimizer_lr", "did you mean policy_lr="),
        ("sac", "ent_coeff", "did you mean temperature="),
        ("sac", "gama", r"did you mean gamma=\.\.\.\? \(discount here\)"),
        ("sac", "lerning_rate", r"did you mean learning_rate=\.\.\.\? \(policy_lr, qf_lr, temperature_lr here\)"),
        ("sac", "bufer_size", "did you mean buffer_size="),
        ("pearl", "ent_coef", "there is no weight of the entropy here"),
        ("ppo", "bufer_size", "there is no replay buffer"),
        ("cem", "learnin_rate", "nothing is learned by gradient steps here"),
        ("dqn", "polyak", "did you mean target_update_steps="),
        ("dqn", "critic_lr", "did you mean learning_rate="),
        ("td3", "exploration_fraction", "there is no share of random actions"),
        ("ppo", "temperature_lr", "there is no temperature that is learned here"),
        ("ppo", "fixed_alpha", r"did you mean entropy_coeff=\.\.\.\?$"),
        ("cem", "n_delta", "population counts all candidates, rather than pairs"),
        ("sac", "n_delta", "there are no candidates here"),
        ("td3", "replay_buffer_class", r"goals in hindsight \(hindsight_ratio\) are an option of the one buffer"),
        ("pearl", "replay_buffer_class", "the class of the replay buffer is no option; replay_size is its size"),
        ("ppo", "replay_buffer_class", "there is no replay buffer"),
        ("cem", "action_noise", "the search itself explores"),
        ("cem", "top_quantiles_to_drop_per_net", "there are no critics here"),
        ("pearl", "activation_fn", "the activation of these networks is no option"),
        ("ppo", "optimization_n_minibatches", r"did you mean batch_size=\.\.\.\? \(the size of one, rather than"),
        ("ppo", "num_layers", r"did you mean hidden_sizes="),
        ("td3", "policy_weight_decay", "weights do not decay here"),
        ("ppo", "kl_lambda", "no context is embedded"),
        ("sac", "num_evaluation_episodes", r"did you mean num_episodes=\.\.\.\?$"),
        ("sac", "train_freq", r"did you mean update_to_data=\.\.\.\? \(a ratio: 0\.25 is one gradient step for 4"),
        ("td3", "alpha", "there is no weight of the entropy here"),
        ("pearl", "alpha", "there is no weight of the entropy here"),
        ("sac", "alpha", r"did you mean temperature=\.\.\.\?$"),
        ("ppo", "alpha", "did you mean learning_rate="),
        ("ars", "n_samples", r"did you mean num_directions=\.\.\.\? \(pairs: half of the candidates\)"),
        ("ppo", "batchsize", r"did you mean batch_size=\.\.\.\?$"),
        ("cem", "batchsize", "there are no minibatches"),
        ("dqn", "polcy", "did you mean policy="),
        ("ppo", "progress", r"agent\.learn\(\.\.\., progress=False\) shows nothing"),
        ("ppo", "num_train_steps", "did you mean num_passes="),
        ("sac", "pretrained", r"metaroll\.load\(folder\)"),
        ("sac", "pretrainings", "Known: batch_size, "),
    ],
)
def test_answers_are_true_of_the_algorithm(algo: str, name: str, answer: str) -> None:
    env = {"pearl": "point-robot", "dqn": "CartPole-v1", "cem": "CartPole-v1"}.get(algo, "Pendulum-v1")
    with pytest.raises(UnknownNameError, match=f"^unknown option '{name}'.*{answer}"):
        metaroll.agent(algo, env, **{name: 0.5})


NEVER_BESIDE: dict[str, tuple[str, ...]] = {
    "no replay buffer": ("replay_size",),
    "nothing is learned by gradient steps": ("learning_rate", "policy_lr", "qf_lr", "inner_lr"),
    "nothing adapts by gradient steps": ("inner_lr",),
    "no weight of the entropy": ("entropy_coeff", "temperature"),
    "no temperature": ("temperature_lr", "init_temperature", "target_entropy"),
    "no context": ("latent_dim", "context_lr"),
    "no candidates": ("population", "num_directions"),
    "no critics": ("qf_lr", "value_coeff", "double"),
    "no minibatches": ("batch_size",),
    "no target networks": ("tau", "target_update_steps"),
    "no passes": ("num_passes",),
    "no share of random actions": ("max_epsilon",),
    "the policy itself explores": ("exploration_noise", "max_epsilon", "population", "num_directions"),
    "the search itself explores": ("policy_lr", "learning_starts", "clip_range"),
    "learning starts with the first epoch": ("warmup_steps",),
    "gradients are not clipped": ("max_grad_norm",),
    "ratios are not clipped": ("clip_range",),
    "weights do not decay": ("weight_decay",),
    "rollouts of an epoch are its data": ("replay_size",),
}
"""Part of an answer -> options of an algorithm of which it is not true."""


@pytest.mark.parametrize("algo", ALGORITHM_NAMES)
def test_no_answer_contradicts_an_option(algo: str) -> None:
    names = {option.name for option in run_options(algo)}
    answers = {name: near_options(name, "", names) for name in concept_names() if name not in names}
    for part, others in NEVER_BESIDE.items():
        given = [name for name, answer in answers.items() if part in answer]
        assert not given or names.isdisjoint(others), (part, given)
    for name, answer in answers.items():
        assert "one buffer" not in answer or "replay_size" in names, name
        for priority in ("priority_exponent", "hindsight_ratio"):
            assert priority not in answer or priority in names, name
        assert answer and not answer.startswith("'"), name


@pytest.mark.parametrize(
    "name",
    [
        *(
            "entropy_coef_decay",
            "num_transforms",
            "reset_timesteps",
            "simulator",
            "steps_to_epoch",
        ),
        *("num_offers", "kl_lambdas_x", "env_batch_size"),
    ],
)
def test_no_guess_has_another_word_in_it(name: str) -> None:
    for algo in ALGORITHM_NAMES:
        assert near_options(name, "", {option.name for option in run_options(algo)}) == "", algo


def test_what_is_known_is_no_misspelled_field_of_a_config() -> None:
    for kind, name in ((configs.MAMLConfig, "learning_rate"), (configs.SACConfig, "epochs"), (configs.RunConfig, "lr")):
        with pytest.raises(UnknownNameError, match=f"^unknown option '{name}'. Known: "):
            kind(**{name: 3})


@pytest.mark.parametrize(
    ("make", "name", "answer"),
    [
        (configs.PPOConfig, "buffer_size", "there is no replay buffer"),
        (configs.PPOConfig, "context_lr", "no context is embedded"),
        (configs.SACConfig, "n_epochs", "there are no passes over the data of an epoch"),
        (configs.SACConfig, "hidden_sizes", r"a learner is given its networks \(policy=\.\.\.\); metaroll\.agent\("),
        (configs.RecurrentSACConfig, "hidden_sizes", r"did you mean hidden_size=\.\.\.\?"),
        (metaroll.CMAES, "buffer_size", "there is no replay buffer"),
        (metaroll.configs.EstimatorConfig, "clip_max_norm", "gradients are not clipped here"),
    ],
)
def test_configs_of_learners_say_what_they_have_no_field_for(make: Any, name: str, answer: str) -> None:
    with pytest.raises(UnknownNameError, match=f"^unknown option '{name}'; {answer}"):
        make(**{name: 3})


def test_a_learner_says_what_it_is_given_in_place_of_an_option() -> None:
    learner = metaroll.agent("sac", "Pendulum-v1").algo
    for name, answer in (
        ("hidden_sizes", "a learner is given its networks"),
        ("replay_buffer_class", "replay_buffer$"),
    ):
        with pytest.raises(UnknownNameError, match=answer):
            type(learner)(learner.env_spec, **{name: 3})


@pytest.mark.parametrize(
    ("algo", "env", "documented"),
    [
        ("pearl", "point-robot", metaroll.PEARL),
        ("sac", "Pendulum-v1", metaroll.OffPolicyRLAlgorithm),
        ("cem", "CartPole-v1", metaroll.CEM),
        ("cmaes", "CartPole-v1", metaroll.CMAES),
    ],
)
def test_learners_are_of_their_documented_class_and_have_its_attributes(algo: str, env: str, documented: type) -> None:
    made = metaroll.agent(algo, env, size="small" if algo == "pearl" else None).algo
    assert isinstance(made, documented)
    for name in list(inspect.signature(documented).parameters):
        value, kind = getattr(made, name), inspect.getattr_static(made, name, None)
        if isinstance(kind, ConfigField) and kind.changes:
            setattr(made, name, value)
        elif isinstance(kind, ConfigField):
            with pytest.raises(AttributeError, match=f"^{name} of a {type(made).__name__} "):
                setattr(made, name, value)


def test_classes_of_documents_are_no_subclasses_of_each_other() -> None:
    assert not issubclass(metaroll.CMAES, metaroll.CEM)
    assert not isinstance(metaroll.agent("sac", "Pendulum-v1").algo, metaroll.PEARL)


def test_errors_of_documented_constructors_name_what_was_typed() -> None:
    given = metaroll.agent("cem", "CartPole-v1").algo
    networks = dict.fromkeys(("env", "inner_policy", "qf", "vf", "test_env_sampler"))
    numbers = {"num_train_tasks": 1, "num_test_tasks": 1, "latent_dim": 1, "encoder_hidden_sizes": (4,)}
    spec, policy = given.env_spec, given.policy
    for make, names, value in (
        (lambda **options: metaroll.CEM(spec, policy, None, **options), ("n_samples", "population", "popsize"), 0),
        (lambda **options: metaroll.CEM(spec, policy, None, 40, **options), ("max_path_length", "max_steps"), 0),
        (lambda **options: metaroll.CEM(spec, policy, None, 40, **options), ("seed", "random_seed"), -1),
        (lambda **options: metaroll.PEARL(**networks, **numbers, **options), ("soft_target_tau", "tau"), 3),
        (metaroll.MetaEvaluator, ("n_exploration_traj", "num_adaptation_episodes", "n_exploration_eps"), 0),
        (metaroll.SamplerPool, ("num_threads", "num_workers", "n_jobs"), 0),
    ):
        for name in names:
            with pytest.raises(ValueError, match=f"^{name} must "):
                make(**{name: value})
    for name in ("discount", "max_path_length", "evaluate_every", "seed", "n_samples"):
        with pytest.raises(AttributeError, match=f"^{name} of a CEM "):
            setattr(given, name, 1)


def test_configs_say_what_they_need_and_functions_what_is_a_keyword(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^meta_batch_size must"):
        PEARLConfig(meta_batch_size=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^PEARLConfig .*latent_dim=\.\.\., num_train_tasks"):
        PEARLConfig()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^agent .*algo and env "):
        metaroll.agent("sac", "Pendulum-v1", PEARLConfig)  # type: ignore[call-arg]
    with pytest.raises(UnknownNameError, match=r"'from_epok'.*from_epoch="):
        metaroll.load(tmp_path, from_epok=3)  # type: ignore[call-arg]


def test_documented_constructors_take_all_names_of_their_parameters_and_answer_others() -> None:
    given = metaroll.agent("cem", "CartPole-v1").algo
    made = metaroll.CEM(given.env_spec, given.policy, None, population=40, gamma=0.9)  # type: ignore[call-arg]
    assert (made.n_samples, made.discount) == (40, 0.9)
    held_out = metaroll.MetaEvaluator(max_steps=7, n_test_tasks=3, num_adaptation_episodes=5)  # type: ignore[call-arg]
    assert (held_out.max_path_length, held_out.num_test_tasks, held_out.n_exploration_traj) == (7, 3, 5)
    networks = dict.fromkeys(("env", "inner_policy", "qf", "vf", "test_env_sampler"))
    numbers = {"num_train_tasks": 1, "num_test_tasks": 1, "latent_dim": 1, "encoder_hidden_sizes": (4,)}
    for make, keywords, answer in (
        (metaroll.CEM, {"gama": 0.9}, "unknown option 'gama'; did you mean gamma="),
        (metaroll.CEM, {"n_sample": 40}, "unknown option 'n_sample'; did you mean n_samples="),
        (metaroll.PEARL, {**networks, **numbers, "lerning_rate": 0.1}, "did you mean learning_rate="),
        (metaroll.MetaEvaluator, {"n_exploraton_traj": 3}, "did you mean n_exploration_traj="),
        (metaroll.LocalRunner, {"num_worker": 2}, "did you mean num_workers="),
        (metaroll.LocalRunner, {"evaluator": {"bogus": 1}}, "unknown option 'bogus'"),
    ):
        with pytest.raises(UnknownNameError, match=answer):
            make(**keywords)
    for keywords, message in (
        ({"soft_target_tau": 0.1, "tau": 0.1}, "tau .*twice, .*soft_target_tau and tau"),
        ({"learning_rate": -1}, "learning_rate must .*got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            metaroll.PEARL(**networks, **numbers, **keywords)
    with pytest.raises(ValueError, match=r"discount .*twice, .*gamma"):
        metaroll.CEM(given.env_spec, given.policy, None, 40, 0.9, gamma=0.9)  # type: ignore[call-arg]
