"""specs/sampling.md 8.2: what to do after a rollout has been shown."""

from __future__ import annotations

import numpy as np
import pytest
from sampler_envs import NOMINAL, Oscillator

from metaroll.lab.display.interactive import after_rollout_query
from metaroll.rollouts.single.rollout import rollout


@pytest.fixture
def asked():
    """Runs the query with given answers; returns what it returned, all that it showed, and the environment."""

    def run(*answers, env=None, plot=None, states=True):
        env = Oscillator() if env is None else env
        result = rollout(env if states else Plain(), lambda obs: obs[:1], max_steps=2, seed=0, no_close=True)
        lines, shown = list(answers), []

        def ask(prompt):
            if not lines:
                raise EOFError
            return lines.pop(0)

        answer = after_rollout_query(env, "the policy", result, ask=ask, show=shown.append, plot=plot)
        assert lines == []
        return answer, shown, env

    return run


class Plain(Oscillator):
    """Tells neither its state nor parameters."""

    domain_param = None
    get_nominal_domain_param = None

    @property
    def state(self):
        return None

    @state.setter
    def state(self, value):
        self._state = value

    def reset(self, *, seed=None, options=None):
        return np.zeros(2), {}

    def step(self, action):
        return np.zeros(2), 0.0, False, False, {}


@pytest.mark.parametrize("line", ["c", "", "  ", "C"])
def test_continue(asked, line):
    """specs/sampling.md 8.2: c or an empty line is (False, None, None)."""
    answer, shown, env = asked(line)
    assert answer == (False, None, None) and env.closed == 0
    assert "plot" not in shown[0] and "e  end" in shown[0]


def test_end_closes_the_environment(asked):
    answer, _, env = asked("e")
    assert answer == (True, None, None) and env.closed == 1
    answer, _, env = asked()  # the end of the input
    assert answer == (True, None, None) and env.closed == 1


def test_nominal_parameters(asked):
    assert asked("n")[0] == (False, None, NOMINAL)
    assert asked("n", env=Plain(), states=False)[0] == (False, None, None)

    class Delayed(Oscillator):
        @property
        def domain_param(self):
            return {**NOMINAL, "act_delay": 3}

    assert asked("n", env=Delayed())[0] == (False, None, {**NOMINAL, "act_delay": 0})


def test_an_initial_state_has_as_many_numbers_as_the_state(asked):
    """specs/sampling.md 8.2: upstream compares with the observation space."""
    (done, state, params), shown, _ = asked("f", "1 2 3", "1 x", "0.5, -1")
    assert (done, state.tolist(), params) == (False, [0.5, -1.0], {})
    assert shown[1:] == ["the state has 2 numbers, got 3", "'1 x' is not a list of numbers"]
    assert asked("f", "", "c")[0] == (False, None, None)
    assert asked("f", "1 2 3", env=Plain(), states=False)[0][1].tolist() == [1.0, 2.0, 3.0]


def test_domain_parameters_and_lines_that_cannot_be_read(asked):
    """specs/sampling.md 8.2 (d): upstream returns None after an unreadable line."""
    answer, shown, _ = asked("s", "mass 2", "mass", "stiffness = 0.5", "")
    assert answer == (False, None, {"mass": 2.0, "stiffness": 0.5})
    assert "'mass' is not a name and a number" in shown[1]
    assert asked("s", "mass 2")[0] == (False, None, {"mass": 2.0})  # the input ends


def test_information_and_unknown_keys_ask_again(asked):
    answer, shown, _ = asked("i", "quit now", "pa", "c")
    assert answer == (False, None, None)
    assert "the policy" in shown[1] and "'mass': 1.0" in shown[1]
    assert "'quit now' is not in the menu" in shown[2] and "'pa' is not in the menu" in shown[3]


def test_plots_are_offered_where_something_can_plot(asked):
    calls = []

    def plot(result, kind, index):
        calls.append((len(result), kind, index))
        if index == 7:
            raise IndexError("index must be from 0 to 1")
        return "picture.png" if kind == "all" else None

    answer, shown, _ = asked("p", "pa", "po 1", "ps 7", "po one", "pr", "pdt", "c", plot=plot)
    assert answer == (False, None, None) and "po [index]" in shown[0]
    kinds = [("all", None), ("actions", None), ("observations", 1), ("states", 7), ("rewards", None), ("dts", None)]
    assert calls == [(2, *kind) for kind in kinds]
    assert shown[1] == "plotted: picture.png" and shown[2] == "cannot plot: index must be from 0 to 1"
    assert shown[3].startswith("cannot plot: invalid literal")


def test_text_goes_to_the_standard_output_by_default(capsys):
    env = Oscillator()
    result = rollout(env, lambda obs: obs[:1], max_steps=2, seed=0)
    assert after_rollout_query(env, None, result, ask=lambda prompt: "c") == (False, None, None)
    assert "What next?" in capsys.readouterr().out
