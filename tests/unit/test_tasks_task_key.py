"""A task's side follows from its values alone, forever."""

from __future__ import annotations

import datetime
import hashlib
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from metaroll.tasks.split_sampler import check_test_share, task_side
from metaroll.tasks.task_key import task_key, task_numbers, task_text

Goal = namedtuple("Goal", ["name", "data"])


@dataclass
class Place:
    x: float
    y: float


class When(datetime.date):
    """Its values are not its attributes."""


class Plain:
    def __init__(self, mass):
        self.mass = mass


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ({"goal": [0, 1], "mass": 0.5}, "{'goal':[0,1],'mass':0.5}"),
        ({"mass": np.float64(0.5), "goal": np.array([0.0, 1.0])}, "{'goal':[0,1],'mass':0.5}"),
        ({"goal": (False, True), "mass": 0.5}, "{'goal':[0,1],'mass':0.5}"),
        (-0.0, "0"),
        (2**60 + 1, "1152921504606846977"),
        (Goal("reach", b"x"), "['reach',b'x']"),
        ({"goal": torch.tensor([0.0, 2.5])}, "{'goal':[0,2.5]}"),
        (Place(1.0, 2.5), "Place{'x':1,'y':2.5}"),
        (Plain(3), "Plain{'mass':3}"),
        (None, "None"),
    ],
)
def test_equal_values_give_one_text(task, text):
    assert task_key(task) == text


def test_the_side_is_the_first_64_bits_of_a_hash():
    """Pinned: another rule would move tasks of finished runs to the other side."""
    task = {"place": 0.25}
    share = int(hashlib.sha256(b"{'place':0.25}").hexdigest()[:16], 16) / 2**64
    assert share == pytest.approx(0.16497, abs=1e-5)
    assert task_side(task, share - 1e-9) == "train"
    assert task_side(task, share + 1e-9) == "test"
    held_out = [i for i in range(30) if task_side(i, 0.2) == "test"]
    assert held_out == [8, 9]


def test_about_the_share_is_held_out_and_a_larger_share_keeps_what_a_smaller_one_holds_out():
    tasks = [{"mass": float(m)} for m in np.random.default_rng(0).normal(size=4000)]
    small, large = ({i for i, t in enumerate(tasks) if task_side(t, share) == "test"} for share in (0.2, 0.4))
    assert len(small) == pytest.approx(800, abs=100)  # standard deviation 25
    assert small < large


def test_what_has_no_values_is_refused():
    with pytest.raises(TypeError, match=r"task must .*function"):
        task_side(lambda: None, 0.2)
    for error, share in ((ValueError, 0), (ValueError, 1), (ValueError, 1.5), (TypeError, "0.2"), (TypeError, True)):
        with pytest.raises(error, match=f"test_share must .*{share}"):
            check_test_share(share)


def test_things_without_values_are_compared_by_themselves():
    class Loop:
        def __init__(self):
            self.me = self

    def function():
        pass

    assert task_key({"make": function, "x": 1}) == task_key({"x": 1.0, "make": function}) != task_key({"x": 1})
    assert task_key({"make": function}) != task_key({"make": lambda: None})
    first, other = When(2020, 1, 1), When(2021, 1, 1)
    assert task_key(first) == task_key(When(2020, 1, 1)) != task_key(other)
    loop = Loop()
    assert task_key(loop) == task_key(loop) != task_key(Loop())


def test_numbers_of_a_task_have_names():
    task = {"goal": np.array([0.0, 1.0]), "name": "x", "body": {"mass": 2}, "place": Place(3, 4)}
    assert task_numbers(task) == {"goal[0]": 0.0, "goal[1]": 1.0, "body.mass": 2.0, "place.x": 3.0, "place.y": 4.0}
    assert task_numbers(0.5) == {"task": 0.5}
    assert task_numbers("reach") == {}


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ({"velocity": 1.4213}, "velocity=1.42"),
        ({"goal": np.array([0.3123, 0.95], dtype=np.float32)}, "goal=(0.312, 0.95)"),
        ({"goal": torch.tensor([-0.0, 1.0])}, "goal=(0, 1)"),
        ({"pole_mass": 0.12734, "gravity": 9.81}, "pole_mass=0.127, gravity=9.81"),
        ({"count": 12345, "big": 12345.6}, "count=12345, big=1.23e+04"),
        ({name: 1.0 for name in "abcdef"}, "a=1, b=1, c=1, d=1, … (+2)"),
        ({"mass": np.ones(7)}, "mass=(1, 1, 1, 1, … (+3))"),
        ({"body": {"x": 1.0}, "none": None}, "body=(x=1), none=none"),
        (Place(0.5, 2.0), "x=0.5, y=2"),
        (Goal("reach", 3), "(reach, 3)"),
        ("HopperEnv", "HopperEnv"),
        (np.float64(1.25), "1.25"),
        ((0.1, 0.2), "(0.1, 0.2)"),
        (When(2026, 11, 22), "2026-11-22"),
        (None, ""),
        ({}, "{}"),
        (Place, "Place"),
    ],
)
def test_texts_of_tasks(task, text):
    assert task_text(task) == text
