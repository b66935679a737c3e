"""What options are called in other libraries, and what stands for them here, at the command line and in Python."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from metaroll.errors import UnknownNameError, command_text, option_text, said, unknown_name

__all__ = [
    "GIVEN",
    "near_options",
    "swapped_names",
    "unknown_argument",
    "unknown_attribute",
    "unknown_in_module",
    "unknown_options",
]


GIVEN = "the options"
"""Where values come from that were typed, as flags or keywords, rather than written into a file."""


class _Other(NamedTuple):
    """Options here, of which some may be there, how they are used, and what stands for them in Python if none is."""

    here: tuple[str, ...]
    note: str = ""
    in_python: str = ""
    absent: str = ""
    """What to say where none is there, rather than to guess."""


_LENGTH = "agent.learn(100_000) takes that many environment steps, agent.learn(epochs=20) so many epochs"
_NETWORKS = "networks come from the preset, their widths from hidden_sizes=(64, 64)"

_OPTIONS: dict[tuple[str, ...], _Other] = {
    ("lr", "alpha", "step_size", "learning_rate", "learning_rates"): _Other(
        ("learning_rate", "policy_lr", "qf_lr", "vf_lr", "context_lr")
    ),
    ("total_timesteps", "timesteps", "total_steps", "env_steps", "num_env_steps", "num_timesteps", "max_timesteps"): (
        _Other(("epochs",), "an epoch has a fixed number of environment steps, which is shown at the start", _LENGTH)
    ),
    ("iterations", "n_iter", "num_iterations", "n_itr", "num_epochs"): _Other(("epochs",)),
    ("n_epochs",): _Other(("num_passes", "epochs")),
    ("n_envs", "num_envs", "n_cpu", "workers", "n_workers", "num_procs", "n_jobs", "num_processes"): _Other(
        ("num_workers",)
    ),
    ("gamma",): _Other(("discount",)),
    ("gae", "lam", "lambda", "gae_lam"): _Other(("gae_lambda",)),
    ("clip", "clip_coef", "clip_param", "eps_clip", "clip_eps"): _Other(("clip_range",)),
    ("clip_range_vf",): _Other(("value_clip_range",)),
    ("normalize_advantage",): _Other(("normalize_advantages",)),
    ("ent_coef", "entropy", "ent_coeff", "entropy_coef"): _Other(("entropy_coeff",)),
    ("vf_coef", "value_coef"): _Other(("value_coeff",)),
    ("n_steps", "num_steps", "rollout_length", "horizon_steps", "steps", "train_freq"): _Other(
        ("steps_per_epoch", "num_steps_prior")
    ),
    ("gradient_steps", "updates"): _Other(("num_steps_per_epoch", "num_passes")),
    ("learning_starts", "start_steps", "warmup_steps"): _Other(("num_initial_steps",)),
    ("horizon", "max_steps", "time_limit", "max_episode_steps", "episode_length"): _Other(("max_path_length",)),
    ("minibatch_size", "mini_batch", "minibatches", "num_minibatches"): _Other(("batch_size",)),
    ("net_arch", "layers", "hidden", "hidden_size", "hidden_dim", "network_size", "policy_kwargs"): _Other(
        ("hidden_sizes",), "widths are separated by spaces, as in --hidden-sizes 64 64", "as in hidden_sizes=(64, 64)"
    ),
    ("policy", "policy_class", "policy_type"): _Other(("network",), "mlp or gru", _NETWORKS),
    ("activation_fn", "activation", "nonlinearity"): _Other(("hidden_nonlinearity",), "tanh, relu", "'tanh', 'relu'"),
    ("buffer_size", "replay_size"): _Other(
        ("replay_buffer_size",), absent="there is no replay buffer: this algorithm learns from new episodes alone"
    ),
    ("tau", "polyak"): _Other(("soft_target_tau",)),
    ("n_epochs_per_batch", "update_epochs", "k_epochs"): _Other(("num_passes",)),
    ("z_dim", "latent_size", "context_dim"): _Other(("latent_dim",)),
    ("eval_freq", "eval_every", "eval_interval", "test_interval"): _Other(("evaluate_every",)),
    ("n_eval_episodes", "eval_episodes"): _Other(("num_episodes", "episodes", "n_test_rollouts")),
    ("output", "output_dir", "save_dir", "save_path", "logdir", "log_dir", "run_dir", "dir", "folder", "out"): _Other(
        ("out", "run_dir")
    ),
    ("tensorboard_log", "log_tensorboard"): _Other(("tensorboard",), "", "tensorboard=True writes into the run folder"),
    ("gpu", "cuda", "use_gpu"): _Other(("device",), "as in --device cuda", 'as in device="cuda"'),
    ("n_seeds", "num_seeds"): _Other(("seeds",), "", "an agent for each seed, and metaroll.compare(*agents)"),
    ("random_seed", "random_state"): _Other(("seed",)),
    ("verbose", "silent", "quiet"): _Other(("quiet",), "", "agent.learn(..., progress=False) shows nothing"),
    ("callback", "callbacks"): _Other((), "", "agent.learn(..., callbacks=[mine])"),
    ("config",): _Other((), "", "every option is a keyword: metaroll.agent(algo, env, **options)"),
    ("checkpoint", "step", "epoch_to_load"): _Other(("from_epoch",)),
    ("save_total_limit", "max_to_keep", "keep_checkpoints"): _Other(("keep_last",)),
    ("save_best", "best_model_save_path", "keep_best_model"): _Other(("keep_best",), "as in --keep-best return"),
    ("target", "target_return", "reward_threshold", "stop_return", "stop_reward", "early_stop"): _Other(("stop_at",)),
    ("max_time", "time_budget", "max_seconds", "max_hours", "wall_time"): _Other(("budget",), "as in --budget 10m"),
    ("track", "use_wandb", "wandb_project"): _Other(("wandb",), "with the name of a project"),
}
"""Names elsewhere -> what stands for them here."""


_ARGUMENTS = {
    "total_timesteps": "agent.learn(100_000) takes that many environment steps",
    "callback": "agent.learn(..., callbacks=[mine])",
    "progress_bar": "agent.learn(..., progress=True), which is the default",
    "log_interval": "every epoch is written to metrics.jsonl, and shown",
    "tb_log_name": "metaroll.agent(..., tensorboard=True) writes into the run folder",
    "reset_num_timesteps": "agent.learn again goes on; metaroll.agent(...) begins anew",
}
"""Arguments of ``learn`` in other libraries, and what stands for them here."""

_METHODS = {
    "predict": "agent.act(obs) is the action alone, agent.reset() begins an episode",
    "get_parameters": "agent.policy is what acts, agent.algo the algorithm",
    "set_parameters": "metaroll.load(folder) reads what agent.save(folder) has written",
    "set_env": "metaroll.agent(algo, env) makes an agent for another environment",
    "get_env": "agent.config['env'] names the environment, agent.train_tasks and agent.test_tasks make those of tasks",
    "load": "agent = metaroll.load(folder)",
    "train": "agent.learn(100_000) takes that many environment steps",
    "env": "agent.config['env'] names it, agent.env_spec has its spaces",
    "observation_space": "agent.env_spec.observation_space",
    "action_space": "agent.env_spec.action_space",
    "num_timesteps": "every line of metrics.jsonl in agent.run_dir has the environment steps so far (env_steps)",
    "logger": "metrics.jsonl in agent.run_dir has every number; agent.learn(..., callbacks=[mine]) is told them",
}
"""Methods and attributes of agents in other libraries, and what stands for them here."""

_LEARNS = "metaroll.agent(algo, env).learn(100_000), with an algorithm of `metaroll list`"
_CALLBACK = "agent.learn(..., callbacks=[mine]) takes objects with on_epoch_end(runner, epoch, metrics)"
_WORKERS = "metaroll.agent(algo, env, num_workers=4) samples in so many processes; nothing is to be wrapped"
_MODULE = {
    "evaluate_policy": "agent.evaluate()",
    **dict.fromkeys(("make_vec_env", "DummyVecEnv", "SubprocVecEnv", "VecEnv"), _WORKERS),
    **dict.fromkeys(("VecNormalize", "VecMonitor", "Monitor"), "environments are given as they are: " + _LEARNS),
    **dict.fromkeys(("A2C", "ARS", "DDPG", "DQN", "SAC", "TD3", "TQC", "TRPO"), _LEARNS),
    **dict.fromkeys(("BaseCallback", "CheckpointCallback", "EvalCallback"), _CALLBACK),
    **dict.fromkeys(("train", "learn"), "metaroll.agent(algo, env).learn(100_000)"),
    "make": "gymnasium.make(env), or the name alone: metaroll.agent(algo, env)",
    "save": "agent.save(folder)",
}
"""Names in other libraries that are asked of ``metaroll`` itself, and what stands for them here."""


def swapped_names(names: Sequence[str], algorithms: Sequence[str]) -> str:
    """What to type where the environment stands before the algorithm; empty where it does not."""
    if len(names) > 1 and names[0] not in algorithms and names[1] in algorithms:
        right = said(f"metaroll.agent({names[1]!r}, {names[0]!r})", command_text("train", names[1], names[0]))
        return f"the algorithm comes first: {right}"
    if len(names) > 1 and names[0].endswith("Policy"):
        right = said(f"metaroll.agent(algo, {names[1]!r})", command_text("train", "ALGO", names[1]))
        return f"the algorithm comes first: {right}; {_NETWORKS}"
    return ""


def near_options(
    name: str, value: str, known: Iterable[str], written: Callable[[str], str] = option_text, *, notes: bool = True
) -> str:
    """What may be meant by an option that is not ``known``, as a sentence; empty where there is no guess.

    Args:
        name: What the user typed, dashes or underscores.
        value: What stands behind it at the command line; empty for nothing.
        known: Names of all options there are, dashes or underscores.
        written: How an option of that name is written.
        notes: Say how it is used.
    """
    plain = _plain(name)
    texts = {_plain(option): option for option in known}
    if plain in ("set", "override", "o", "opt", "option", "param", "hparam"):
        other, equals, rest = value.partition("=")
        example = f"--{other.replace('_', '-')} {rest}" if equals and other else "--epochs 20"
        return f"every option is a flag of its own: {example}" + _unknown_there(other, known)
    for names, other in _OPTIONS.items():
        if plain not in names:
            continue
        there = [written(option) for option in other.here if option in texts]
        note = said(other.in_python, other.note) if notes else ""
        if there:
            return f"did you mean {' or '.join(there)}?" + (f" ({note})" if note else "")
        if note and said(other.in_python, ""):
            return note
        if other.absent:
            return other.absent
    near = difflib.get_close_matches(plain, sorted(texts), n=3, cutoff=0.55)
    return f"did you mean {' or '.join(written(match) for match in near)}?" if near else ""


def unknown_options(values: Mapping[str, Any], known: Iterable[str], where: str) -> UnknownNameError | None:
    """Error for the names in ``values`` that are no options, all at once; ``None`` where there are none.

    Args:
        values: What was given, name -> value.
        known: Names of all options there are.
        where: What gave them.
    """
    known = list(known)
    wrong = [str(name) for name in values if name not in known]
    typed = where == GIVEN
    hints = {name: near_options(name, "", known, option_text if typed else repr, notes=typed) for name in wrong}
    if not wrong:
        return None
    place = "" if typed else f" (in {where})"
    if len(wrong) == 1:
        if not hints[wrong[0]]:
            return unknown_name(f"option{place}", wrong[0], known)
        return UnknownNameError(f"unknown option{place} {wrong[0]!r}; {hints[wrong[0]]}")
    told = [f"{name!r}: {hint or 'nothing here is like it'}" for name, hint in hints.items()]
    return UnknownNameError(f"unknown options{place} {'; '.join(told)}")


def unknown_argument(name: str, known: Sequence[str]) -> str:
    """What to say of an argument of ``Agent.learn`` that is not ``known``."""
    hint = _ARGUMENTS.get(name) or near_options(name, "", known) or f"there are {', '.join(known)}"
    return f"learn has no argument {name!r}: {hint}"


def unknown_attribute(name: str) -> str:
    """What to say of an attribute that an agent does not have."""
    return f"an Agent has no attribute {name!r}" + (f": {_METHODS[name]}" if name in _METHODS else "")


def unknown_in_module(name: str, known: Sequence[str]) -> str:
    """What to say of an attribute that ``metaroll`` does not have; ``known`` are those it has."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    hint = _MODULE.get(name) or (f"did you mean {near[0]!r}?" if near else "")
    return f"module 'metaroll' has no attribute {name!r}" + (f": {hint}" if hint else "")


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _unknown_there(name: str, known: Iterable[str]) -> str:
    """A further guess, if ``name`` is no option, either."""
    missing = name and _plain(name) not in map(_plain, known)
    guess = near_options(name, "", known) if missing else ""
    return f"; of --{name.replace('_', '-')}, {guess}" if guess else ""
