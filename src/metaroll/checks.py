"""Checks of users' values, returned as plain Python, and functions. Internal code trusts checked values."""

from __future__ import annotations

import inspect
import math
import os
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from metaroll.errors import LARGEST_COUNT, LARGEST_SEED, DataError, ShapeError, shortened

__all__ = [
    "array_of",
    "check_flag",
    "check_fraction",
    "check_instance",
    "check_limit",
    "check_list",
    "check_number",
    "check_path",
    "check_seed",
    "check_unit_interval",
    "check_whole",
    "described",
    "domain_row",
    "entry_text",
    "is_tensor",
    "plain_number",
    "row_numbers",
    "short_name",
    "takes_arguments",
]

T = TypeVar("T")


def check_whole(name: str, value: Any, low: int = 1, high: int | None = None) -> int:
    """``value`` as an int, if it is an integer from ``low`` to ``high`` (``None`` means ``LARGEST_COUNT``).

    Raises:
        TypeError: It is not an integer, or is a boolean.
        ValueError: It is too small or too large.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        got = f"{shortened(value)} of type {type(value).__name__}"
        raise TypeError(f"{name} must be an integer of at least {low}, got {got}")
    if value < low:
        raise ValueError(f"{name} must be an integer of at least {low}, got {shortened(int(value))}")
    most = LARGEST_COUNT if high is None else high
    if value > most:
        raise ValueError(f"{name} must be at most {most}, got {shortened(int(value))}")
    return int(value)


def check_seed(name: str, value: Any) -> int:
    """``value`` as an int, if it is a seed: an integer of at least 0, with at most 128 bits.

    Raises:
        TypeError: It is not an integer, or is a boolean.
        ValueError: It is negative or too large.
    """
    return check_whole(name, value, 0, LARGEST_SEED)


def check_limit(name: str, value: Any) -> None:
    """Error unless ``value`` is a limit of steps: an integer of at least 1, or infinite.

    Raises:
        TypeError: It is something else.
        ValueError: It is below 1.
    """
    if isinstance(value, float | np.floating) and value == math.inf:
        return
    check_whole(name, value)


def described(value: Any) -> str:
    """A value for the "got" of an error: always short. Arrays by type and shape, lists by their length."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, str | bytes | int | float | complex | np.generic):
        plain = value.item() if isinstance(value, np.generic) else value
        return f"{shortened(plain) if isinstance(plain, int) else reprlib.repr(plain)} of type {type(value).__name__}"
    if isinstance(value, np.ndarray) or is_tensor(value):
        return f"{type(value).__name__} of dtype {value.dtype} and shape {tuple(value.shape)}"
    if isinstance(value, Sized):
        return f"{type(value).__name__} with {len(value)} entries"
    return f"an object of type {_type_name(type(value))}"


def entry_text(value: Any) -> str:
    """An entry of an array in a message: a plain Python value, or the first ones of a row."""
    return reprlib.repr(value.tolist() if isinstance(value, np.ndarray | np.generic) else value)


def _type_name(kind: type) -> str:
    """Its name; of another package with the public part of its module, since NumPy and torch have a Generator each."""
    module = kind.__module__.split(".")
    if module[0] in ("builtins", "__main__", "metaroll"):
        return kind.__name__
    return ".".join([*(part for part in module if not part.startswith("_")), kind.__name__])


def array_of(name: str, value: Any, expected: str) -> np.ndarray:
    """``value`` as an array, if it is one of real numbers (booleans are not).

    Raises:
        TypeError: It is something else; names what is ``expected``.
        ShapeError: It is a list of lists of unequal lengths.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{name} must be {expected}, got {described(value)} of unequal lengths") from error
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be {expected}, got {described(value)}")
    return array


def check_number(
    name: str,
    value: Any,
    low: float,
    high: float = math.inf,
    *,
    above_low: bool = False,
    below_high: bool = False,
) -> float:
    """``value`` as a float, if it is a finite number in [low, high], without the ends that it is above or below.

    Raises:
        TypeError: It is not a number (booleans are not).
        ValueError: It lies outside, or is NaN or infinite.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {shortened(value)} of type {type(value).__name__}")
    number = _as_float(value)
    if (
        not math.isfinite(number)
        or not low <= value <= high
        or (above_low and value == low)
        or (below_high and value == high)
    ):
        if low == -math.inf and high == math.inf:
            raise ValueError(f"{name} must be a finite number, got {shortened(value)}")
        opening = "(" if above_low or low == -math.inf else "["
        closing = ")" if below_high or high == math.inf else "]"
        got = shortened(value) if isinstance(value, int) else value
        raise ValueError(f"{name} must lie in {opening}{low:g}, {high:g}{closing}, got {got}")
    return number


def _as_float(value: Any) -> float:
    """``float(value)``; infinity for an integer that no float can hold."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a tensor, without loading torch: where there is a tensor, it is loaded."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def check_flag(name: str, value: Any) -> bool:
    """``value`` as a bool, if it is True or False; a text like "no" would count as true.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {described(value)}")
    return bool(value)


def check_instance(name: str, value: Any, kind: type[T], expected: str) -> T:
    """``value``, if it is a ``kind``.

    Raises:
        TypeError: It is something else; names what is ``expected``.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {expected}, got {described(value)}")
    return value


def check_list(name: str, value: Any, entries: str, kind: type[Any] = object, hint: str = "") -> list[Any]:
    """``value`` as a list, if it is an iterable of ``kind`` alone; texts and dicts are no lists.

    Args:
        name: How messages call it.
        value: The user's argument.
        entries: How messages call its entries: "StepSequences".
        kind: Their class.
        hint: Added where it is something else.

    Raises:
        TypeError: It is no list, or an entry is something else.
    """
    expected = f"{name} must be a list of {entries}"
    if isinstance(value, kind) and kind is not object:
        raise TypeError(f"{expected}, got a single one; pass [{name.removesuffix('s')}]")
    try:
        if isinstance(value, str | bytes | Mapping):
            raise TypeError
        entries_left = iter(value)
    except TypeError:
        raise TypeError(f"{expected}, got {described(value)}{hint}") from None
    listed = list(entries_left)
    for position, entry in enumerate(listed):
        if not isinstance(entry, kind):
            raise TypeError(f"{expected}, got {described(entry)} at position {position}{hint}")
    return listed


def check_path(name: str, value: Any, what: str = "folder") -> Path:
    """``value`` as the path of a folder or a file (``what``), with ``~`` for the home folder.

    Raises:
        TypeError: It is neither text nor a path.
        ValueError: It is empty.
    """
    if not isinstance(value, str | os.PathLike) or isinstance(os.fspath(value), bytes):
        raise TypeError(f"{name} must be the name of a {what} (str or Path), got {described(value)}")
    if not os.fspath(value):
        raise ValueError(f"{name} must be the name of a {what}, got an empty text")
    return Path(value).expanduser()


def check_unit_interval(name: str, value: Any) -> float:
    """``value`` as a float, if it lies in [0, 1] (a discount factor or a GAE lambda); arrays of one entry also work.

    Raises:
        TypeError: It is not a number (booleans are not).
        ValueError: It lies outside, or is NaN.
    """
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be a number in [0, 1], got {value!r}")
    try:
        number = _as_float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a number in [0, 1], got {shortened(value)}") from error
    if not 0.0 <= number <= 1.0:  # false for NaN too
        raise ValueError(f"{name} must lie in [0, 1], got {shortened(value)}")
    return number


def check_fraction(name: str, value: Any) -> float:
    """``value`` as a float, if it lies in (0, 1) (an alpha, a confidence, a share).

    Raises:
        TypeError: It is not a number (booleans are not).
        ValueError: It lies outside, or is NaN.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number in (0, 1), got {shortened(value)}")
    if not 0.0 < value < 1.0:  # true for NaN too
        raise ValueError(f"{name} must lie in (0, 1), got {shortened(value)}")
    return float(value)


def plain_number(name: str, value: Any, *, finite: bool = True) -> float:
    """``value`` as a plain number.

    Args:
        name: How messages call it.
        value: Number, or array or tensor of one entry (on any device, with or without gradient).
        finite: Refuse infinity.

    Raises:
        TypeError: Not a number.
        ValueError: NaN, or infinite.
    """
    if isinstance(value, float):  # np.float64, too: the usual type, and there may be one for each of many rollouts
        number = float(value)
    else:
        try:
            value = value.detach().cpu() if is_tensor(value) else value
            array = np.asarray(_as_float(value) if isinstance(value, int) else value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            array = np.zeros(0)
        if array.size != 1 or isinstance(value, str):
            raise TypeError(f"{name} must be a number, got {shortened(value)}")
        number = float(array.reshape(()))
    if math.isnan(number) or (finite and not math.isfinite(number)):
        raise ValueError(f"{name} must be {'finite' if finite else 'a number'}, got {number}")
    return number


def short_name(value: Any) -> str:
    """The name of a class or function; of any other callable, that of its class."""
    return str(getattr(value, "__name__", None) or type(value).__name__)


def takes_arguments(func: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """False if ``func(*args, **kwargs)`` is bound to fail because of its parameters; nothing is called.

    True where that is not known: for functions without a signature, and those that hand their arguments on.
    """
    try:
        # The arguments that a decorator passes to the function inside it are not checked.
        signature = inspect.signature(func, follow_wrapped=False)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def domain_row(names: Sequence[str], reported: Mapping[str, Any] | None, source: str) -> list[float]:
    """The domain parameters ``names`` as ``source`` reports them, ``(D,)``.

    Raises:
        DataError: One is not reported, or no finite number.
    """
    row = []
    for name in names:
        if name not in (reported or {}):
            known = ", ".join(sorted(reported or {})) or "none"
            raise DataError(
                f"domain parameter {name!r} is not reported by {source} (it reports: {known}); take an environment "
                "with domain_param, or variations that set it (DomainParamUpdate, a domain randomizer)"
            )
        try:
            row.append(plain_number(f"domain parameter {name!r} of {source}", (reported or {})[name]))
        except (TypeError, ValueError) as error:
            raise DataError(str(error)) from error
    return row


def row_numbers(numbers: Any, count: int) -> np.ndarray:
    """``numbers``, or those where a mask ``(count,)`` is true, as numbers of at least 0."""
    try:
        chosen = np.asarray(numbers)
    except ValueError:  # lists of unequal lengths
        chosen = np.zeros((1, 1))
    if chosen.dtype == bool and chosen.shape == (count,):
        return np.flatnonzero(chosen)
    if chosen.dtype == bool and chosen.size:
        raise IndexError(f"a mask must have one entry per rollout ({count},), got shape {chosen.shape}")
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise TypeError(
            f"numbers must be a list of whole numbers, or a mask of {count} rollouts, got {described(numbers)}"
        )
    chosen = chosen.astype(np.int64)
    outside = chosen[(chosen < -count) | (chosen >= count)]
    if outside.size:
        raise IndexError(f"numbers must be below the number of rollouts, {count}, got {outside[0]}")
    return np.where(chosen < 0, chosen + count, chosen)
