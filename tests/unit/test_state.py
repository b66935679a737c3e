"""A class names the parts of its state once; they are written, and restored all or nothing."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from metaroll.data.compare import trees_equal
from metaroll.errors import SnapshotError
from metaroll.learners.base import RLAlgorithm
from metaroll.seeding import isolated_rng
from metaroll.state import Part, Saved, Stateful, parts, told


class Sums(NamedTuple):
    number: int
    total: np.ndarray


@dataclass(frozen=True)
class Best:
    value: float = 0.0
    at: np.ndarray = field(default_factory=lambda: np.zeros(2, dtype=np.float32))


class ByHand:
    """What is no ``Stateful`` has a state, too."""

    def __init__(self, number: int) -> None:
        self.number = number

    def state_dict(self) -> dict[str, int]:
        return {"number": self.number}

    def load_state_dict(self, tree: dict[str, int]) -> None:
        self.number = tree["number"]


class Inner(Stateful):
    state_parts = parts("sums", draws="_generator", hand="_hand")

    def __init__(self, seed: int) -> None:
        self.sums = Sums(seed, np.full(3, float(seed)))
        self._generator = np.random.default_rng(seed)
        self._hand = ByHand(seed)
        self.num_restored = 0

    def after_restore(self) -> None:
        self.num_restored += 1


class Whole(Stateful):
    state_parts = parts(
        "seed",
        "name",
        "nothing",
        inner="_inner",
        networks="_networks",
        optimizer="_optimizer",
        noise="_noise",
        collection=parts(best="_best", weight="_weights.0", pair="_pair", returns="_returns"),
        device=told("name"),
        halved=Part(write=lambda whole: whole.half * 2, restore=lambda whole, tree: setattr(whole, "half", tree / 2)),
    )
    buffer_parts = parts(rows="_rows")

    def __init__(self, seed: int) -> None:
        self.seed, self.name, self.nothing, self.half = seed, f"number {seed}", None, seed / 2
        self._inner = Inner(seed)
        with isolated_rng(seed):
            self._networks = {"q": torch.nn.Linear(2, 1, bias=False), "v": torch.nn.BatchNorm1d(2)}
        self._optimizer = torch.optim.Adam(self._networks["q"].parameters(), lr=0.1 * seed)
        self._networks["q"](torch.full((1, 2), float(seed))).sum().backward()
        self._optimizer.step()
        self._noise = torch.Generator().manual_seed(seed)
        self._best, self._weights = Best(float(seed)), [torch.full((2, 3), float(seed)).T]
        self._pair, self._returns = (seed, -float(seed)), [float(seed)] * seed
        self._rows = np.full(4, seed)

    def draws(self) -> list[Any]:
        return [self._inner._generator.random(), torch.rand(1, generator=self._noise)]


def test_all_kinds_of_parts_come_back_to_the_bit_and_train_on_alike() -> None:
    one, other = Whole(2), Whole(3)
    kept_in_place = (other._networks["q"].weight, other._inner, other._noise)
    other.load_state_dict(one.state_dict())
    assert trees_equal(one.state_dict(), other.state_dict()) and trees_equal(one.draws(), other.draws())
    assert (other.seed, other.half, other._pair, other._returns) == (2, 1.0, (2, -2.0), [2.0, 2.0])
    assert other._best.at.dtype == np.float32 and other._weights[0].stride() == (1, 3)
    assert (other._networks["q"].weight, other._inner, other._noise) == kept_in_place
    assert other._inner.num_restored == 1 and isinstance(other._inner, Saved)
    for each in (one, other):
        each._networks["q"].weight.grad = torch.ones(1, 2)
        each._optimizer.step()
    assert trees_equal(one.state_dict(), other.state_dict())


def test_a_tree_and_the_object_share_no_memory() -> None:
    one, other = Whole(2), Whole(3)
    tree = one.state_dict()
    kept = copy.deepcopy(tree)
    other.load_state_dict(tree)
    for each in (one, other):
        each._optimizer.step()
        each.draws()
        each._inner.sums.total[:] = 9.0
        each._weights[0].fill_(9.0)
        each._returns.append(9.0)
    assert trees_equal(tree, kept)


BROKEN: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "array": (("inner", "sums", "total"), np.zeros(2), r"inner\.sums\.total: ShapeError: must have shape \(3,\)"),
    "module": (("networks", "q"), {}, "networks.q: RuntimeError"),
    "optimizer": (("optimizer", "groups"), {}, "optimizer: ValueError: 0 parameter groups"),
    "moment": (("optimizer", "state", "0", "exp_avg"), torch.zeros(7), "optimizer: .*exp_avg of parameter 0"),
    "generator": (("inner", "draws"), {"bit_generator": "x"}, "inner.draws: "),
    "noise": (("noise",), torch.zeros(3), "noise: "),
    "number": (("seed",), None, "seed: TypeError"),
    "pair": (("collection", "pair"), [1], "collection.pair: ShapeError: there must be 2 entries"),
    "field": (("collection", "best"), {"value": 1.0}, "collection.best.at: KeyError"),
    "by hand": (("inner", "hand"), {}, "inner.hand: KeyError"),
    "of its own": (("halved",), "x", "halved: TypeError"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_does_not_fit_is_named_and_changes_nothing(kind: str) -> None:
    path, value, told_of = BROKEN[kind]
    one, tree = Whole(2), Whole(3).state_dict()
    before, branch = one.state_dict(), tree
    for name in path[:-1]:
        branch = branch[name]
    branch[path[-1]] = value
    with pytest.raises(SnapshotError, match=rf"state of Whole is damaged.*nothing was changed \({told_of}"):
        one.load_state_dict(tree)
    assert trees_equal(one.state_dict(), before) and one._inner.num_restored == 0


@pytest.mark.parametrize(("tree", "text"), [({}, r"of Whole lacks \["), ([], "of Whole must be a dict")])
def test_the_state_of_something_else_is_refused(tree: Any, text: str) -> None:
    one = Whole(2)
    with pytest.raises(SnapshotError, match=text):
        one.load_state_dict(tree)
    entries = {**Whole(3).state_dict(), "collection": {}}
    with pytest.raises(SnapshotError, match=r"of Whole\.collection lacks \['best', .*nothing was changed"):
        one.load_state_dict(entries)
    assert one.seed == 2


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"nothing": {"of": "another"}}, "nothing: TypeError: must be None"),
        ({"networks": {"q": {}, "r": {}}}, "networks"),
    ],
)
def test_what_is_not_here_is_refused(change: Any, text: str) -> None:
    one, before = Whole(2), Whole(2).state_dict()
    with pytest.raises(SnapshotError, match=text):
        one.load_state_dict({**Whole(3).state_dict(), **change})
    assert trees_equal(one.state_dict(), before)


def test_what_was_not_there_when_it_was_saved_stays_as_it_is() -> None:
    one = Whole(2)
    one.load_state_dict({**Whole(3).state_dict(), "inner": None})
    assert (one.seed, one._inner.sums.number) == (3, 2)


def test_a_tensor_and_its_optimizer_stay_together() -> None:
    class Temperature(Stateful):
        state_parts = parts("log_alpha", "optimizer")

        def __init__(self) -> None:
            self.log_alpha = torch.nn.Parameter(torch.zeros(1))
            self.optimizer = torch.optim.Adam([self.log_alpha], lr=0.1)

        def step(self) -> float:
            self.optimizer.zero_grad()
            (self.log_alpha - 3.0).square().sum().backward()
            self.optimizer.step()
            return self.log_alpha.item()

    one, other = Temperature(), Temperature()
    one.step()
    other.load_state_dict(one.state_dict())
    assert isinstance(other.log_alpha, torch.nn.Parameter)
    assert [one.step(), one.step()] == [other.step(), other.step()]


@pytest.mark.parametrize("kind", ["Adam", "RMSprop", "Adagrad", "Adafactor", "LBFGS"])
def test_any_optimizer_of_torch_is_a_part(kind: str) -> None:
    class Fit(Stateful):
        state_parts = parts("layer", "optimizer")

        def __init__(self) -> None:
            with isolated_rng(0):
                self.layer = torch.nn.Linear(3, 2)
            self.optimizer = getattr(torch.optim, kind)(self.layer.parameters(), lr=0.1)

        def loss(self) -> torch.Tensor:
            self.optimizer.zero_grad()
            value = self.layer(torch.ones(4, 3)).square().sum()
            value.backward()
            return value

        def step(self) -> dict[str, Any]:
            self.optimizer.step(self.loss)
            return self.state_dict()

    one, other = Fit(), Fit()
    one.step()
    tree = one.state_dict()
    kept = copy.deepcopy(tree)
    other.load_state_dict(tree)
    assert trees_equal([one.step(), one.step()], [other.step(), other.step()]) and trees_equal(tree, kept)
    tree["optimizer"]["groups"]["0"]["lr"] = "fast"
    with pytest.raises(SnapshotError, match="lr of group 0 must be a number, got 'fast'"):
        other.load_state_dict(tree)


def test_what_follows_from_the_parts_is_part_of_all_or_nothing() -> None:
    class Cached(Stateful):
        state_parts = parts("count")

        def __init__(self, count: int) -> None:
            self.count = np.int64(count)
            self.after_restore()

        def after_restore(self) -> None:
            self.cache = 12 // self.count if self.count else {}["no"]

    one = Cached(3)
    one.load_state_dict(Cached(4).state_dict())
    assert (one.count, one.cache, type(one.count)) == (4, 3, np.int64)
    with pytest.raises(SnapshotError, match="nothing was changed"):
        one.load_state_dict({"count": 0})
    assert (one.count, one.cache) == (4, 3)


def test_memory_of_arrays_keeps_its_order_and_dicts_their_kind() -> None:
    class Holder(Stateful):
        state_parts = parts("matrix", "named")

        def __init__(self, value: float) -> None:
            self.matrix, self.named = np.full((3, 2), value).T, OrderedDict(a=value)

    holder = Holder(1.0)
    holder.load_state_dict(Holder(2.0).state_dict())
    assert holder.matrix.strides == Holder(1.0).matrix.strides and holder.matrix.tolist() == [[2.0] * 3] * 2
    assert holder.named == OrderedDict(a=2.0) and isinstance(holder.named, OrderedDict)


class More(Whole):
    """Adds a part by hand, and reads what an earlier version wrote."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.more = seed

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "more": self.more}

    def completed_state(self, tree: Any) -> Any:
        return {"more": 7, **tree}

    def restore_parts(self, tree: Any) -> None:
        super().restore_parts(tree)
        self.more = 10 // tree["more"]


def test_a_subclass_may_add_by_hand_and_complete_what_was_saved() -> None:
    one, other = More(2), More(3)
    other.load_state_dict({**one.state_dict(), "more": 5})
    assert (other.seed, other.more) == (2, 2)
    other.load_state_dict(Whole(4).state_dict())
    assert (other.seed, other.more) == (4, 1)
    with pytest.raises(SnapshotError, match=r"of More is damaged.*ZeroDivisionError"):
        other.load_state_dict({**one.state_dict(), "more": 0})
    assert other.seed == 4


def test_buffers_are_apart_and_may_be_views() -> None:
    one, other = Whole(2), Whole(3)
    copied, views = one.buffers_state_dict(), one.buffers_state_dict(copy=False)
    one._rows[0] = 9
    assert copied is not None and views is not None and (copied["rows"][0], views["rows"][0]) == (2, 9)
    other.load_buffers_state_dict(copied)
    assert other._rows.tolist() == [2] * 4 and other.seed == 3
    with pytest.raises(SnapshotError, match=r"\(rows: ShapeError: must have shape \(4,\), got \(3,\)"):
        other.load_buffers_state_dict({"rows": np.zeros(3)})
    inner = Inner(1)
    assert inner.buffers_state_dict() is None
    with pytest.raises(TypeError, match="Inner has no buffers"):
        inner.load_buffers_state_dict({})


@pytest.mark.parametrize("copy", [True, False])
def test_buffers_may_be_whatever_has_a_state(copy: bool) -> None:
    class Memories(Stateful):
        buffer_parts = parts("inner", "hand", "rows")

        def __init__(self, number: int) -> None:
            self.inner, self.hand, self.rows = Inner(number), ByHand(number), np.full(2, number)

    one, tree = Memories(1), Memories(2).buffers_state_dict(copy)
    assert tree is not None
    with pytest.raises(SnapshotError, match=r"\(rows: ShapeError"):
        one.load_buffers_state_dict({**tree, "rows": np.zeros(3)})
    assert (one.inner.sums.number, one.hand.number) == (1, 1), "nothing was changed"
    one.load_buffers_state_dict(tree)
    assert (one.inner.sums.number, one.hand.number, one.rows.tolist()) == (2, 2, [2, 2])


def test_a_learner_whose_buffers_would_be_lost_is_refused() -> None:
    with pytest.raises(TypeError, match="Stateful must come first among the bases of Mine"):

        class Mine(RLAlgorithm, Stateful):
            pass


def test_what_cannot_be_saved_is_refused() -> None:
    class Odd(Stateful):
        state_parts = parts("thing")
        thing = object()

    with pytest.raises(TypeError, match=r"part 'thing' of Odd cannot be saved: .*: give it state_dict"):
        Odd().state_dict()

    class Missing(Stateful):
        state_parts = parts("ther")

    with pytest.raises(TypeError, match=r"part 'ther' of Missing cannot be saved: .* has no attribute 'ther'"):
        Missing().state_dict()


@pytest.mark.parametrize(("own", "saved"), [(3, 3.5), (3, "3"), (3, True), (0.5, "0.5"), (True, 1), ("a", 1)])
def test_a_plain_value_of_another_kind_does_not_fit(own: Any, saved: Any) -> None:
    class Holder(Stateful):
        state_parts = parts("value")

        def __init__(self) -> None:
            self.value = own

    holder = Holder()
    with pytest.raises(SnapshotError, match="value"):
        holder.load_state_dict({"value": saved})
    assert holder.value == own


@pytest.mark.parametrize(
    ("own", "saved"),
    [
        (np.zeros(1, dtype=np.int64), np.array([1.5])),
        (np.zeros(1, dtype=np.uint8), np.array([300])),
        (np.zeros(1, dtype=np.float32), np.array([1e300])),
        (np.zeros(1), np.array([1j])),
        (np.array(["a"]), np.array(["abc"])),
        (torch.zeros(1, dtype=torch.int64), torch.tensor([1.5])),
        (torch.zeros(1), torch.tensor([1e300], dtype=torch.float64)),
    ],
)
def test_what_an_array_here_cannot_hold_does_not_fit(own: Any, saved: Any) -> None:
    class Holder(Stateful):
        state_parts = parts("value")

        def __init__(self) -> None:
            self.value = own

    with pytest.raises(SnapshotError, match=r"must have values that .* can hold"):
        Holder().load_state_dict({"value": saved})


def test_arrays_of_objects_are_refused_when_they_are_saved() -> None:
    class Holder(Stateful):
        state_parts = parts("value")
        value = np.array([None])

    with pytest.raises(TypeError, match="part 'value' of Holder cannot be saved: an array of objects"):
        Holder().state_dict()


def test_a_number_that_loses_nothing_fits() -> None:
    class Holder(Stateful):
        state_parts = parts("count", "rate")

        def __init__(self) -> None:
            self.count, self.rate = 1, 0.5

    holder = Holder()
    holder.load_state_dict({"count": np.int64(4), "rate": 2})

    assert (holder.count, holder.rate, type(holder.rate)) == (4, 2.0, float)
