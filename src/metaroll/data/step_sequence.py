"""The trajectory: all that was recorded in one rollout, or in several one after the other."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, overload

import numpy as np

from metaroll.checks import check_list, check_whole
from metaroll.data.compare import trees_equal
from metaroll.data.data_format import Array, check_data_format, infer_format, iterate_leaves, map_leaves, to_format
from metaroll.data.field_changes import PADDED, pad_flags, pad_leaf, padding_mask, process_fields
from metaroll.data.final_entries import FinalEntries, concat_leaves
from metaroll.data.labeled_tables import fields_to_columns, frame_to_fields
from metaroll.data.step import DictIndexProxy, Step
from metaroll.data.step_storage import FLAGS, StepStorage, as_flags, as_indices
from metaroll.data.tables import make_frame
from metaroll.errors import DataError, ShapeError
from metaroll.functional.minibatches import (
    Generator,
    draw_followed_steps,
    gen_shuffled_batch_idcs,
    ordered_batch_edges,
    shuffled_rollout_groups,
)
from metaroll.functional.returns import check_bounds, discounted_sum
from metaroll.seeding import as_generator
from metaroll.types import EnvSpec

__all__ = ["DictIndexProxy", "Step", "StepSequence"]


class StepSequence(StepStorage, Sequence[Step]):
    """A sequence of steps: one continuous rollout, several of them one after the other, or a loose batch of steps.

    Every field holds one entry per step, N in all. Fields that are known after the last step too (observations, states)
    may hold N + 1; slices and concatenations keep these successors, so that ``next_observations`` (and ``next_<field>``
    for any other field) is exact and never comes from another rollout. A concatenation (``concat``) holds N rows of
    them and keeps the final entries of its sub-rollouts apart; ``get_rollout`` puts them back in place.

    Arrays are used unchanged, not copied.

    Args:
        complete: False if the last step is not the end of its rollout, as in a mini-batch.
        rollout_info: All that stays constant during the rollout.
        data_format: "numpy" or "torch"; ``None`` is "torch" if any data holds a tensor, else "numpy".
        done: Bool ``(N,)``, the last steps of the sub-rollouts, whether terminated or truncated. Default: the ends of
            ``rollout_bounds``, without these all steps that are ``terminated`` or ``truncated``; and the last step if
            ``complete``.
        continuous: True if the steps follow one another; False for a loose batch.
        rollout_bounds: First step of every sub-rollout, then N, ``(R+1,)``. Default: a new one after each ``done``.
        rewards: ``(N,)`` or ``(N, 1)``; determines the number of steps.
        observations: ``(N+1, ...)``, or ``(N, ...)`` if the last one is not known.
        actions: ``(N, ...)``, or ``(N+1, ...)`` if one after the last step is known; it belongs to no step.
        **data: More fields of N or N + 1 entries (N if not continuous): arrays, lists of steps, dicts or tuples of
            such, lists of those. ``terminated`` and ``truncated``, bool ``(N,)``, distinguish endings from time limits
            (Gymnasium's meaning). If one is absent, it is ``done`` without the other; if both are, every ``done`` step
            counts as terminated.

    Note:
        Tensors that trace gradients are refused: what is stored would keep its whole graph alive.
    """

    required_fields: ClassVar[Any] = {}
    rewards: Array
    observations: Array
    actions: Array
    next_observations: Array

    def __init__(
        self,
        *,
        complete: bool = True,
        rollout_info: Any = None,
        data_format: str | None = None,
        done: Any = None,
        continuous: bool = True,
        rollout_bounds: Any = None,
        rewards: Any,
        observations: Any,
        actions: Any,
        **data: Any,
    ) -> None:
        for name, value in (("complete", complete), ("continuous", continuous)):
            if not isinstance(value, bool | np.bool_):
                raise TypeError(f"{name} must be True or False, got {value!r}; no field can have that name")
        terminated, truncated = data.pop("terminated", None), data.pop("truncated", None)
        fields = {"rewards": rewards, "observations": observations, "actions": actions, **data}
        missing = [name for name in type(self).required_fields if name not in fields]
        if missing:
            raise ValueError(f"required field {missing[0]!r} is missing; pass {missing[0]}=...")
        if isinstance(rewards, tuple):
            fields["rewards"] = list(rewards)
        for name in ("rewards", "observations", "actions"):
            if _is_empty(fields[name]):
                raise ShapeError(f"{name} must have at least one step, got none")
        self._format = infer_format(fields.values()) if data_format is None else check_data_format(data_format)
        self.continuous, self.rollout_info = bool(continuous), rollout_info
        self._names, self._finals, self._bounds = [], {}, None
        self._length = _count_steps(fields["rewards"])
        for name, value in fields.items():
            if value is None:
                raise ValueError(f"field {name!r} is None; leave it out or pass {self._length} entries")
            self.add_data(name, value)
        if isinstance(self.rewards, dict | tuple):
            raise ShapeError(f"rewards must be numbers, one per step, got entries like {rewards[0]!r}")
        if self.rewards.shape[1:] not in ((), (1,)):
            raise ShapeError(
                f"rewards must have shape ({self._length},), one number per step, got {tuple(self.rewards.shape)}"
            )
        ended = None if terminated is None else as_flags("terminated", terminated, self._length)
        cut = None if truncated is None else as_flags("truncated", truncated, self._length)
        self._set_ends(complete, done, rollout_bounds, [flags for flags in (ended, cut) if flags is not None])
        if ended is None:
            self.terminated = self.done.copy() if cut is None else self.done & ~cut
        else:
            self.terminated = ended
        self.truncated = self.done & ~self.terminated if cut is None else cut

    def _set_ends(self, complete: bool, done: Any, rollout_bounds: Any, endings: Sequence[np.ndarray]) -> None:
        length = self._length
        bounds = None if rollout_bounds is None else check_bounds(rollout_bounds, length)
        if bounds is not None and not self.continuous:
            raise ValueError("rollout_bounds needs continuous=True: a loose batch of steps has no rollouts")
        if done is None:
            self.done = np.zeros(length, dtype=bool)
            if self.continuous and bounds is not None:
                self.done[bounds[1:-1] - 1] = True
            else:
                for flags in endings:
                    self.done |= flags
            if self.continuous:
                self.done[-1] |= complete
        else:
            self.done = as_flags("done", done, length)
        if self.continuous and bounds is None:
            bounds = np.array([0, *(np.flatnonzero(self.done[:-1]) + 1).tolist(), length])
        self._bounds = bounds

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={getattr(self, name)!r}" for name in ("rewards", "observations", "actions"))
        return f"{type(self).__name__}({parts})"

    def __str__(self) -> str:
        return str(self.observations)

    # ---- parts ---------------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice | Iterable[int]) -> StepSequence: ...
    def __getitem__(self, index: Any) -> Step | StepSequence:
        """One step (integer), the steps of a slice, or those of a list of integers or a bool mask (a loose batch)."""
        if isinstance(index, slice):
            start, stop, stride = index.indices(self._length)
            if stride != 1:
                return self._select(np.arange(start, stop, stride))
            if stop <= start:
                raise ShapeError(f"{index} selects no step of a rollout of {self._length} steps")
            # All of it stays unchanged; a part gets the entry after its last step back in place.
            return self._range(start, stop, append_final=stop - start < self._length)
        if _is_list(index):
            return self._select(as_indices(index, self._length))
        return Step(self, _as_integer(index))

    def get_rollout(self, index: Any) -> StepSequence:
        """Sub-rollouts: the one at an integer (with its final entries in place), or those of a slice, list or mask.

        Raises:
            IndexError: There is no such sub-rollout.
            ShapeError: None is selected.
            ValueError: It is a loose batch of steps.
        """
        bounds = self.rollout_bounds
        count = len(bounds) - 1
        if isinstance(index, slice):
            start, stop, stride = index.indices(count)
            if stride == 1 and stop > start:
                return self._range(int(bounds[start]), int(bounds[stop]), append_final=True)
            chosen = np.arange(start, stop, stride)
        elif _is_list(index):
            chosen = as_indices(index, count)
        else:
            number = _as_integer(index)
            if not -count <= number < count:
                raise IndexError(f"sub-rollout {number} is out of range, there are {count}")
            number %= count
            return self._range(int(bounds[number]), int(bounds[number + 1]), append_final=True)
        if len(chosen) == 0:
            raise ShapeError(f"no sub-rollout of {count} is selected")
        return self.concat([self.get_rollout(int(i)) for i in chosen])

    def iterate_rollouts(self) -> Iterator[StepSequence]:
        """All sub-rollouts, one by one, each with its final entries in place."""
        for i in range(self.rollout_count):
            yield self.get_rollout(i)

    @classmethod
    def concat(
        cls, parts: Sequence[StepSequence], data_format: str | None = None, truncate_last: bool = True
    ) -> StepSequence:
        """One sequence of all steps of several; names of fields and the order of the fields come from the first.

        Args:
            parts: Sequences with the same fields.
            data_format: "numpy" or "torch"; ``None`` takes that of the first part.
            truncate_last: The fields hold exactly one entry per step. False leaves the final entry of the last part in
                place (N + 1 entries). Either way the final entries of all parts are kept for ``next_...``,
                ``get_rollout`` and slices.

        Returns:
            Sequence with the sub-rollouts of all parts; its ``rollout_info`` is theirs if all are equal, else ``None``.

        Raises:
            DataError: Fields differ.
            ShapeError: Entries of a field do not fit together.
            TypeError: ``parts`` is a single sequence, or holds something else.
            ValueError: There is no part.
        """
        parts = check_list("parts", parts, "StepSequences", StepSequence)
        if not parts:
            raise ValueError("parts must hold at least one StepSequence, got none")
        for i, other in enumerate(parts):
            odd = set(parts[0]._names) ^ set(other._names)
            if odd:
                raise DataError(
                    f"all parts must have the same fields: {sorted(odd)[0]!r} is not in both part 0 and {i}"
                )
        fmt = parts[0]._format if data_format is None else check_data_format(data_format)
        continuous = all(part.continuous for part in parts)
        ends = [part.rollout_bounds if continuous else np.array([0, len(part)]) for part in parts]
        finals: dict[tuple[Any, ...], FinalEntries] = {}

        def join(name: str) -> Any:
            trees = [dict(iterate_leaves(getattr(part, name))) for part in parts]

            def leaf(_: Array, path: tuple[Any, ...]) -> Array:
                if any(path not in tree for tree in trees):
                    raise DataError(f"all parts must have the same entries in {name!r}; {path} is not in every one")
                leaves = [tree[path] for tree in trees]
                known = [part._finals.get((name, *path)) for part in parts]
                try:
                    rows, rest = concat_leaves(leaves, known, ends, fmt, truncate_last and continuous)
                except ShapeError as error:
                    raise ShapeError(f"field {'.'.join(map(str, (name, *path)))!r}: {error}") from error
                if rest is not None and continuous:
                    finals[(name, *path)] = rest
                return rows

            return map_leaves(leaf, getattr(parts[0], name))

        fields = {name: join(name) for name in parts[0]._names}
        flags = {name: np.concatenate([getattr(part, name) for part in parts]) for name in FLAGS}
        bounds = None
        if continuous:
            offsets = np.cumsum([0, *(len(part) for part in parts[:-1])])
            bounds = np.concatenate([[0], *(b[1:] + o for b, o in zip(ends, offsets, strict=True))])
        info = parts[0].rollout_info
        same = all(trees_equal(info, part.rollout_info) for part in parts[1:])
        return cls._assemble(fields, finals, flags, bounds, info if same else None, fmt)

    @classmethod
    def process_data(
        cls,
        rollout: StepSequence,
        fcn: Callable[..., Any],
        fcn_arg_name: str,
        fcn_arg_types: type | tuple[type, ...] = np.ndarray,
        include_fields: Collection[str] | None = None,
        exclude_fields: Collection[str] | None = None,
        **process_fcn_kwargs: Any,
    ) -> StepSequence:
        """A new sequence whose data went through a function, such as ``scipy.signal.filtfilt``.

        The function sees one array ``(T, ...)`` at a time: the entries of one sub-rollout of one field (the final one
        included), also inside dicts and tuples. It must keep their number. Ends, bounds, format and ``rollout_info``
        stay; fields that are not processed are shared with ``rollout``, which does not change.

        Args:
            rollout: The data.
            fcn: The function, called as ``fcn(<fcn_arg_name>=array, **process_fcn_kwargs)``.
            fcn_arg_name: Name of the argument that takes the array.
            fcn_arg_types: Types that are processed; the rest stays unchanged (``torch.Tensor`` for format "torch").
            include_fields: Names of the fields to process; ``None`` means all.
            exclude_fields: Names of fields to leave unchanged.
            **process_fcn_kwargs: Other arguments of the function.

        Raises:
            DataError: A field to include or exclude does not exist.
            ShapeError: The function changed the number of entries.
            TypeError: It is not a function, or ``fcn_arg_types`` fits no field.
            ValueError: ``fcn_arg_name`` is among the other arguments.
        """
        if not callable(fcn):
            raise TypeError(f"fcn must be callable, got {fcn!r}")
        if fcn_arg_name in process_fcn_kwargs:
            raise ValueError(
                f"fcn_arg_name {fcn_arg_name!r} is the argument that takes the data; do not pass a value for it"
            )
        names = rollout._chosen_fields(include_fields, exclude_fields)
        bounds = rollout._bounds
        fields, finals = process_fields(
            {name: getattr(rollout, name) for name in names},
            rollout._finals,
            np.array([0, len(rollout)]) if bounds is None else bounds,
            rollout._format,
            lambda data: fcn(**process_fcn_kwargs, **{fcn_arg_name: data}),
            fcn_arg_types,
        )
        return rollout._with_fields({name: getattr(rollout, name) for name in rollout._names} | fields, finals)

    def _chosen_fields(self, include: Collection[str] | None, exclude: Collection[str] | None) -> list[str]:
        for argument, chosen in (("include_fields", include), ("exclude_fields", exclude)):
            if isinstance(chosen, str):
                raise TypeError(f"{argument} must be a list of names, got the text {chosen!r}")
            for name in chosen or ():
                if name not in self._names:
                    raise DataError(f"{argument}: there is no field {name!r}; fields: {', '.join(self._names)}")
        return [name for name in self._names if (include is None or name in include) and name not in (exclude or ())]

    @classmethod
    def pad(
        cls,
        rollout: StepSequence,
        len_to_pad_to: int,
        pad_value: int | float = 0,
        mode: Literal["constant", "edge"] = "constant",
    ) -> None:
        """Lengthen one rollout with steps that never happened, in place; nothing happens to one that is long enough.

        Padding comes after the final entries. Either way the rollout gets a bool field ``padded (N,)``, true for steps
        that are padding, so that padded and unpadded rollouts have the same fields. The end (``done`` and the rest)
        moves to the last step.

        Args:
            rollout: A single rollout, modified in place.
            len_to_pad_to: Number of steps that it shall have (final entries not counted).
            pad_value: Value of the new entries. Integers get it if it is a whole number, else 0; bools get False, text
                is empty, and objects are ``None``.
            mode: "edge" repeats the last entry of each field instead.

        Raises:
            ShapeError: It holds several rollouts.
            TypeError: A number is none.
            ValueError: There is no such mode, the length is below 1, the rollout is a loose batch, or the value does
                not fit into the integers of a field.
        """
        length = check_whole("len_to_pad_to", len_to_pad_to)
        if isinstance(pad_value, bool | np.bool_) or not isinstance(pad_value, numbers.Real):
            raise TypeError(f"pad_value must be an int or a float, got {pad_value!r}")
        if mode not in ("constant", "edge"):
            raise ValueError(f"mode must be 'constant' or 'edge', got {mode!r}")
        if rollout.rollout_count != 1:  # raises ValueError for a loose batch
            raise ShapeError(
                f"one rollout can be padded, this is {rollout.rollout_count}; pad each of iterate_rollouts()"
            )
        missing = length - len(rollout)
        mask = padding_mask(getattr(rollout, PADDED) if PADDED in rollout._names else None, len(rollout))
        if missing <= 0:
            if PADDED not in rollout._names:
                rollout.add_data(PADDED, mask)
            return
        value = float(pad_value) if mode == "constant" else None
        # All new data first: if one field cannot be padded, nothing has changed. The final entries are put in place, so
        # that they stay right behind the true steps.
        whole = rollout.get_rollout(0)
        fields = {
            name: map_leaves(lambda leaf, path: pad_leaf(leaf, missing, value, path), getattr(whole, name), (name,))
            for name in rollout._names
        }
        fields[PADDED] = to_format(np.concatenate([mask, np.ones(missing, dtype=bool)]), rollout._format)
        flags = pad_flags({name: getattr(rollout, name) for name in FLAGS}, missing)
        bounds = np.array([0, length])
        padded = rollout._assemble(fields, {}, flags, bounds, rollout.rollout_info, rollout._format)
        vars(rollout).update(vars(padded))

    @classmethod
    def from_pandas(cls, df: Any, env_spec: EnvSpec, continuous: bool = True, task: Any = None) -> StepSequence:
        """A rollout from a table with one row per step and one for the entries after the last step.

        The labels of ``env_spec`` pick the columns of observations, actions and states; without labels, or where the
        table does not have them, these are the columns that ``to_pandas`` writes for their spaces (``observations[0]``,
        ``actions.gripper``). States may be absent. The column "rewards" holds the rewards, "done", "terminated" and
        "truncated" the ends. Any other column is a separate field, but ``name[0]``, ``name[1]``, ... together are the
        field ``name``, ``name.key`` an entry of it. Columns may be filled up with missing values at their end. The
        number of steps is that of the actions, at most one less than that of the rows; an action in the last row is
        left out.

        So what ``to_pandas`` wrote of a continuous rollout comes back, except for what a table does not contain:
        ``rollout_info``, the data format (it is "numpy") and the dtype of text (it becomes objects) are not in it, nor
        are entries without any number (shape ``(0,)``, empty dicts). A final entry that is NaN or ``None`` counts as
        absent. Named tuples, and dicts with the keys "0", "1", ..., become tuples; other keys text; names of fields
        and keys with a dot or a bracket are split. ``save_rollout`` keeps all of that.

        Args:
            df: The table.
            env_spec: Spaces and their labels.
            continuous: False if the rows are loose steps; each of them is a step then.
            task: Recomputes the rewards, ``task.step_rew(state, action, 0)``. Without a task and a column "rewards"
                they are 0.

        Raises:
            DataError: A labeled column is missing.
            ShapeError: Columns are of lengths that do not fit together.
            TypeError: ``df`` is not a data frame, ``env_spec`` no ``EnvSpec``, or ``task`` has no ``step_rew``.
            ValueError: Columns are named ambiguously, or hold no numbers where there must be some.
        """
        return cls(continuous=continuous, data_format="numpy", **frame_to_fields(df, env_spec, continuous, task))

    def to_pandas(self, env_spec: EnvSpec | None = None) -> Any:
        """A table with one row per step and one for the entries after the last step; ``from_pandas`` reads it again.

        Needs pandas: ``pip install -e '.[tables]'``.

        Args:
            env_spec: Its labels name the columns of observations, actions and states. Columns without a label are
                called after their field (``observations[0]``).

        Raises:
            ImportError: pandas is missing.
            ShapeError: It holds several rollouts, or entries are not of the space that has labels.
            ValueError: Two columns with different values would have the same name.
        """
        if self.continuous and self.rollout_count > 1:
            raise ShapeError(
                f"a table holds one rollout, this is {self.rollout_count}; take each of iterate_rollouts()"
            )
        fields = {name: getattr(self, name) for name in self._names}
        flags = {name: getattr(self, name) for name in FLAGS}
        return make_frame(fields_to_columns(fields, self._finals, flags, self._bounds, env_spec))

    # ---- mini-batches --------------------------------------------------------------------------------------------

    def sample_w_next(self, batch_size: int, *, generator: Generator = None) -> tuple[StepSequence, StepSequence]:
        """Random steps and the steps that follow them in the same rollout: two loose batches, copies.

        Args:
            batch_size: Number of steps; none is drawn twice, nor the last step of a rollout.
            generator: Source of randomness, or its seed; ``None`` means fresh entropy.

        Raises:
            ValueError: Fewer steps are followed by another one, or it is a loose batch.
        """
        chosen = draw_followed_steps(self.rollout_bounds, batch_size, generator=generator)
        return self[chosen], self[chosen + 1]

    def split_ordered_batches(
        self, batch_size: int | None = None, num_batches: int | None = None
    ) -> Iterator[StepSequence]:
        """Slices that follow one another, with true successors; give one of the two arguments.

        Args:
            batch_size: Number of steps in each; the last one may have fewer.
            num_batches: Number of slices; their lengths differ by one step at most.

        Raises:
            ValueError: Both are given, or none, or there are more batches than steps.
        """
        edges = ordered_batch_edges(self._length, batch_size, num_batches)
        if len(edges) == 2:
            return iter((self,))
        return (self[edges[i] : edges[i + 1]] for i in range(len(edges) - 1))

    def split_shuffled_batches(
        self, batch_size: int, complete_rollouts: bool = False, *, generator: Generator = None
    ) -> Iterator[StepSequence]:
        """Batches that together hold every step once, in random order.

        Args:
            batch_size: Number of steps in each; the last one may have fewer. All steps in their order if it is as large
                as their number.
            complete_rollouts: Batches are whole rollouts, one after the other, with at least ``batch_size`` steps
                (except for the last batch). Otherwise they are loose steps.
            generator: Source of randomness, or its seed; ``None`` means fresh entropy.

        Raises:
            ValueError: ``batch_size`` is below 1, or a loose batch has no complete rollouts.
        """
        size = check_whole("batch_size", batch_size)
        if complete_rollouts and not self.continuous:
            raise ValueError(
                "complete_rollouts needs a continuous sequence: a loose batch of steps (continuous=False) has no "
                "rollouts"
            )
        if size >= self._length:
            return iter((self,))
        rng = as_generator(generator)
        if complete_rollouts:
            groups = shuffled_rollout_groups(size, self.rollout_bounds, generator=rng)
            return (self.get_rollout(group) for group in groups)
        return (self[indices] for indices in gen_shuffled_batch_idcs(size, self._length, generator=rng))

    # ---- returns -------------------------------------------------------------------------------------------------

    def undiscounted_return(self) -> float:
        """Sum of the rewards of one rollout.

        Raises:
            ShapeError: It is not one rollout.
        """
        return float(self.discounted_return(1.0))

    def discounted_return(self, gamma: float) -> Any:
        """The discounted return ``sum_t gamma^t r_t`` of one rollout: a NumPy scalar, or a tensor in format "torch".

        Raises:
            ShapeError: It is not one rollout.
            ValueError: ``gamma`` lies outside [0, 1].
        """
        if self._bounds is None or len(self._bounds) != 2:
            what = "a loose batch of steps" if self._bounds is None else f"{len(self._bounds) - 1} rollouts"
            raise ShapeError(f"a return belongs to one rollout, this is {what}; see iterate_rollouts()")
        rewards: Any = self.rewards
        return discounted_sum(rewards[:, 0] if rewards.shape[1:] == (1,) else rewards, gamma)


def _is_list(index: Any) -> bool:
    """Whether an index selects many: all but a number, which may be an array without axes."""
    return isinstance(index, Iterable) and getattr(index, "ndim", 1) > 0


def _as_integer(index: Any) -> int:
    """An integer index; bools, whose meaning is not clear, are refused."""
    if isinstance(index, bool | np.bool_):
        raise TypeError("one entry is selected by an integer, not a bool")
    return operator.index(index)


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict | tuple):
        return False  # an empty one is an element of an empty Dict or Tuple space
    try:
        return len(value) == 0
    except TypeError:  # what has no length is not a list that could be empty
        return False


def _count_steps(rewards: Any) -> int:
    try:
        if isinstance(rewards, dict):
            raise TypeError("a dict has no order of steps")
        return len(rewards)
    except TypeError:
        raise ShapeError(f"rewards must be a sequence with one number per step, got {rewards!r}") from None
