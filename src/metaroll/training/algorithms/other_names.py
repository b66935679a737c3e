"""Names of methods, arguments and classes in other libraries, and their counterparts here.

Those of options are in ``metaroll.concepts``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from metaroll.errors import command_text, for_reader
from metaroll.option_names import Named, names_here, near_options

__all__ = [
    "swapped_names",
    "unknown_argument",
    "unknown_attribute",
    "unknown_in_module",
]


_ARGUMENTS = {
    "total_timesteps": "agent.learn(100_000) takes that many environment steps",
    "callback": "agent.learn(..., callbacks=[mine])",
    "progress_bar": "agent.learn(..., progress=True), which is the default",
    "log_interval": "every epoch is written to metrics.jsonl, and shown",
    "tb_log_name": "metaroll.agent(..., tensorboard=True) writes into the run folder",
    "reset_num_timesteps": "agent.learn again continues; metaroll.agent(...) starts over",
}
"""Arguments of ``learn`` in other libraries, and their counterparts here."""

_METHODS = {
    "predict": "agent.act(obs) is the action alone, agent.reset() begins an episode",
    "get_parameters": "agent.policy is the policy, agent.algo the algorithm",
    "set_parameters": "metaroll.load(folder) reads what agent.save(folder) has written",
    "set_env": "metaroll.agent(algo, env) makes an agent for another environment",
    "get_env": "agent.config['env'] names the environment, agent.train_tasks and agent.test_tasks make those of tasks",
    "load": "agent = metaroll.load(folder)",
    "train": "agent.learn(100_000) takes that many environment steps",
    "env": "agent.config['env'] names it, agent.env_spec has its spaces",
    "observation_space": "agent.env_spec.observation_space",
    "action_space": "agent.env_spec.action_space",
    "num_timesteps": "every line of metrics.jsonl in agent.run_dir has the environment steps so far (env_steps)",
    "logger": "metrics.jsonl in agent.run_dir has every number; agent.learn(..., callbacks=[mine]) passes them on",
}
"""Methods and attributes of agents in other libraries, and their counterparts here."""

_NETWORKS = "networks come from the preset, their widths from hidden_sizes=(64, 64)"
_LEARNS = "metaroll.agent(algo, env).learn(100_000), with an algorithm of `metaroll list`"
_CALLBACK = "agent.learn(..., callbacks=[mine]) takes objects with on_epoch_end(runner, epoch, metrics)"
_WORKERS = "metaroll.agent(algo, env, num_workers=4) samples in that many processes; nothing is to be wrapped"
_MODULE = {
    "evaluate_policy": "agent.evaluate()",
    **dict.fromkeys(("make_vec_env", "DummyVecEnv", "SubprocVecEnv", "VecEnv"), _WORKERS),
    **dict.fromkeys(("VecNormalize", "VecMonitor", "Monitor"), "environments are given as they are: " + _LEARNS),
    **dict.fromkeys(("A2C", "TRPO"), _LEARNS),
    **dict.fromkeys(("BaseCallback", "CheckpointCallback", "EvalCallback"), _CALLBACK),
    **dict.fromkeys(("train", "learn"), "metaroll.agent(algo, env).learn(100_000)"),
    "make": "gymnasium.make(env), or the name alone: metaroll.agent(algo, env)",
    "save": "agent.save(folder)",
}
"""Names in other libraries that are looked up in ``metaroll`` itself, and their counterparts here."""


def swapped_names(names: Sequence[str], algorithms: Sequence[str]) -> str:
    """A hint if the environment is named before the algorithm; else empty."""
    if len(names) > 1 and names[0] not in algorithms and names[1] in algorithms:
        right = for_reader(f"metaroll.agent({names[1]!r}, {names[0]!r})", command_text("train", names[1], names[0]))
        return f"the algorithm comes first: {right}"
    if len(names) > 1 and names[0].endswith("Policy"):
        right = for_reader(f"metaroll.agent(algo, {names[1]!r})", command_text("train", "ALGO", names[1]))
        return f"the algorithm comes first: {right}; {_NETWORKS}"
    return ""


def unknown_argument(name: str, known: Sequence[str], options: Iterable[Named]) -> str:
    """The hint for an argument of ``Agent.learn`` that is not ``known``; ``options`` are those of the algorithm."""
    hint = _ARGUMENTS.get(name) or near_options(name, "", known, absent=False)
    if not hint and not {option.name for option in options}.isdisjoint(names_here(name, list(options))):
        hint = f"it is an option of metaroll.agent(algo, env, {name}=...)"
    hint = hint or f"there are {', '.join(known)}"
    return f"learn has no argument {name!r}: {hint}"


def unknown_attribute(name: str) -> str:
    """The hint for an attribute that an agent does not have."""
    return f"an Agent has no attribute {name!r}" + (f": {_METHODS[name]}" if name in _METHODS else "")


def unknown_in_module(module: str, name: str, known: Mapping[str, str]) -> str:
    """The text for an attribute that ``metaroll`` or one of its rooms does not have.

    Args:
        module: Name of the module.
        name: The attribute.
        known: Every public name -> its full path: ``"PendulumEnv"`` -> ``"metaroll.sims.PendulumEnv"``.
    """
    own = [each for each, path in known.items() if path == f"{module}.{each}"]
    hint = _MODULE.get(name, "")
    if not hint and name in known:
        hint = f"it is {known[name]}"
    elif not hint and (near := _nearest(name, own) or _nearest(name, known)):
        hint = f"did you mean {known[near].removeprefix(f'{module}.')!r}?"
    return f"module {module!r} has no attribute {name!r}" + (f": {hint}" if hint else "")


def _nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like ``name``, whatever its case; ``None`` if none is."""
    lowered: dict[str, list[str]] = {}
    for each in known:
        lowered.setdefault(each.lower(), []).append(each)
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.75)
    return difflib.get_close_matches(name, lowered[near[0]], n=1, cutoff=0.0)[0] if near else None
