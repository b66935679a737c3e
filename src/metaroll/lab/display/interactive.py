"""Asks the user what to do next after a rollout has been shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metaroll.data.step_sequence import StepSequence
from metaroll.envs.base.env_state import read_state, state_owner
from metaroll.tasks.domain_params import domain_params_of
from metaroll.tasks.updates import layer_with

__all__ = ["after_rollout_query"]

Answer = tuple[bool, np.ndarray | None, dict[str, Any] | None]

_MENU = """What next?
  c  another rollout (also: just Enter)
  n  another rollout with the nominal domain parameters
  f  another rollout from an initial state that you type
  s  another rollout with domain parameters that you type
  i  describe environment and policy
  e  end"""
_PLOT_MENU = """  p  plot everything; only a part of it:
     pa actions, po [index] observations, ps [index] states, pr rewards, pdt times of steps"""
_PLOTS = {"p": "all", "pa": "actions", "po": "observations", "ps": "states", "pr": "rewards", "pdt": "dts"}


def after_rollout_query(
    env: Any,
    policy: Any,
    rollout: StepSequence,
    *,
    ask: Callable[[str], str] = input,
    show: Callable[[str], Any] | None = None,
    plot: Callable[[StepSequence, str, int | None], Any] | None = None,
) -> Answer:
    """Ask the user what to do after a rollout has been shown.

    Args:
        env: The environment; closed when the user ends the session.
        policy: The policy, described on request.
        rollout: The rollout, for plots.
        ask: Called with a prompt, returns a line of the user's.
        show: Called with each text for the user; ``None`` writes to the standard output.
        plot: Called as ``plot(rollout, kind, index)`` for the plot keys, which are offered only if it is given:
            ``metaroll.lab.figures.plots.plot_rollout``, say. What it returns is shown.

    Returns:
        Whether the user wants to end, and for the next rollout an initial state (or ``None``) and domain parameters
        (or ``None``).
    """
    write = print if show is None else show
    write(_MENU if plot is None else f"{_MENU}\n{_PLOT_MENU}")
    while True:
        words = _answer(ask, "> ").split()
        key, options = (words[0].lower(), words[1:]) if words else ("c", [])
        if key == "c":
            return False, None, None
        if key == "n":
            return False, None, _nominal(env)
        if key == "e":
            env.close()
            return True, None, None
        if key == "f":
            state = _ask_state(ask, write, env, rollout)
            if state is not None:
                return False, state, {}
        elif key == "s":
            return False, None, _ask_params(ask, write)
        elif key == "i":
            write(f"environment: {env}\ndomain parameters: {domain_params_of(env)}\npolicy: {policy}")
        elif plot is not None and key in _PLOTS:
            _plot(plot, write, rollout, _PLOTS[key], options)
        else:
            write(f"{' '.join(words)!r} is not in the menu\n{_MENU}")


def _answer(ask: Callable[[str], str], prompt: str) -> str:
    try:
        return ask(prompt)
    except EOFError:  # the input is closed
        return "e" if prompt == "> " else ""


def _nominal(env: Any) -> dict[str, Any] | None:
    """Nominal parameters of the innermost simulation; a wrapper that delays actions stops doing so."""
    owner = layer_with(env, "get_nominal_domain_param")
    if owner is None:
        return None
    nominal = dict(owner.get_nominal_domain_param())
    present = domain_params_of(env) or {}
    return {**nominal, "act_delay": 0} if "act_delay" in present and "act_delay" not in nominal else nominal


def _ask_state(
    ask: Callable[[str], str], write: Callable[[str], Any], env: Any, rollout: StepSequence
) -> np.ndarray | None:
    """A state, or ``None`` if the user goes back."""
    states = rollout.states if "states" in rollout.data_names else None
    known = read_state(state_owner(env)) if states is None else np.asarray(states)[0]
    size = None if known is None else known.size
    while True:
        line = _answer(ask, f"initial state ({'its' if size is None else size} numbers; Enter: back): ")
        if not line.strip():
            return None
        try:
            values = np.array([float(word) for word in line.replace(",", " ").split()])
        except ValueError:
            write(f"{line.strip()!r} is not a list of numbers")
            continue
        if size is None or values.size == size:
            return values
        write(f"the state has {size} numbers, got {values.size}")


def _ask_params(ask: Callable[[str], str], write: Callable[[str], Any]) -> dict[str, float]:
    params: dict[str, float] = {}
    while True:
        line = _answer(ask, "name value (Enter: done): ").strip()
        if not line:
            return params
        words = line.replace("=", " ").split()
        try:
            name, value = words
            params[name] = float(value)
        except ValueError:
            write(f"{line!r} is not a name and a number, such as: gravity_const 9.81")


def _plot(
    plot: Callable[[StepSequence, str, int | None], Any],
    write: Callable[[str], Any],
    rollout: StepSequence,
    kind: str,
    options: list[str],
) -> None:
    try:
        shown = plot(rollout, kind, int(options[0]) if options else None)
    except (ImportError, IndexError, KeyError, ValueError) as error:
        write(f"cannot plot: {error}")
        return
    if shown is not None:
        write(f"plotted: {shown}")
