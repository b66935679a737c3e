"""What options are called in other libraries, and what stands for them here."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from metaroll.training.algorithms.registry import ALGORITHM_NAMES

__all__ = ["near_options", "swapped_names"]

_OPTIONS: dict[tuple[str, ...], tuple[tuple[str, ...], str]] = {
    ("lr", "alpha", "step-size", "learning-rates"): (
        ("--learning-rate", "--policy-lr", "--qf-lr", "--vf-lr", "--context-lr"),
        "",
    ),
    ("total-timesteps", "timesteps", "total-steps", "env-steps", "num-env-steps", "num-timesteps", "max-timesteps"): (
        ("--epochs",),
        "an epoch has a fixed number of environment steps, which is shown at the start",
    ),
    ("iterations", "n-iter", "num-iterations", "n-itr", "num-epochs", "n-epochs"): (("--epochs",), ""),
    ("n-envs", "num-envs", "n-cpu", "workers", "n-workers", "num-procs", "n-jobs", "num-processes"): (
        ("--num-workers",),
        "",
    ),
    ("gamma",): (("--discount",), ""),
    ("gae", "lam", "lambda", "gae-lam"): (("--gae-lambda",), ""),
    ("clip", "clip-coef", "clip-param", "eps-clip", "clip-eps"): (("--clip-range",), ""),
    ("ent-coef", "entropy", "ent-coeff", "entropy-coef"): (("--entropy-coeff",), ""),
    ("vf-coef", "value-coef"): (("--value-coeff",), ""),
    ("n-steps", "num-steps", "rollout-length", "horizon-steps", "steps"): (("--steps-per-epoch",), ""),
    ("horizon", "max-steps", "time-limit", "max-episode-steps", "episode-length"): (("--max-path-length",), ""),
    ("minibatch-size", "mini-batch", "minibatches", "num-minibatches"): (("--batch-size",), ""),
    ("net-arch", "layers", "hidden", "hidden-size", "hidden-dim", "network-size"): (
        ("--hidden-sizes",),
        "widths are separated by spaces, as in --hidden-sizes 64 64",
    ),
    ("buffer-size", "replay-size"): (("--replay-buffer-size",), ""),
    ("tau", "polyak"): (("--soft-target-tau",), ""),
    ("n-epochs-per-batch", "update-epochs", "k-epochs"): (("--num-passes",), ""),
    ("z-dim", "latent-size", "context-dim"): (("--latent-dim",), ""),
    ("eval-freq", "eval-every", "eval-interval", "test-interval"): (("--evaluate-every",), ""),
    ("n-eval-episodes", "eval-episodes"): (("--num-episodes", "--episodes", "--n-test-rollouts"), ""),
    ("output", "output-dir", "save-dir", "save-path", "logdir", "log-dir", "run-dir", "dir", "folder"): (
        ("--out",),
        "",
    ),
    ("gpu", "cuda", "use-gpu"): (("--device",), "as in --device cuda"),
    ("n-seeds", "num-seeds"): (("--seeds",), ""),
    ("verbose", "silent"): (("--quiet",), ""),
    ("checkpoint", "step", "epoch-to-load"): (("--from-epoch",), ""),
    ("track", "use-wandb", "wandb-project"): (("--wandb",), "with the name of a project"),
}
"""Names elsewhere -> the options here, of which a command has some, and how they are used."""


def swapped_names(names: Sequence[str]) -> str:
    """What to type where the environment stands before the algorithm; empty where it does not."""
    if len(names) > 1 and names[0] not in ALGORITHM_NAMES and names[1] in ALGORITHM_NAMES:
        return f"the algorithm comes first: metaroll train {names[1]} {names[0]}"
    return ""


def near_options(flag: str, value: str, known: Sequence[str]) -> str:
    """What may be meant by a ``flag`` that is not ``known``, as a sentence; empty where there is no guess.

    Args:
        flag: What the user typed, without its value.
        value: What stands behind it; empty for nothing.
        known: All options of the command.
    """
    plain = flag.lstrip("-").replace("_", "-")
    if plain in ("set", "override", "o", "opt", "option", "param", "hparam"):
        name, equals, rest = value.partition("=")
        example = f"--{name.replace('_', '-')} {rest}" if equals and name else "--epochs 20"
        return f"every option is a flag of its own: {example}" + _unknown_there(name, known)
    for names, (options, note) in _OPTIONS.items():
        there = [option for option in options if option in known]
        if plain in names and there:
            return f"did you mean {' or '.join(there)}?" + (f" ({note})" if note else "")
    # Without the dashes, which would make all short names look alike.
    texts = {option.lstrip("-"): option for option in known}
    near = difflib.get_close_matches(plain, sorted(texts), n=3, cutoff=0.55)
    return f"did you mean {' or '.join(texts[name] for name in near)}?" if near else ""


def _unknown_there(name: str, known: Sequence[str]) -> str:
    """A further guess, if ``--name`` is no option, either."""
    flag = "--" + name.replace("_", "-")
    guess = near_options(flag, "", known) if name and flag not in known else ""
    return f"; of {flag}, {guess}" if guess else ""
