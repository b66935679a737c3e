"""Checks of functions that users give: can they be called with the arguments that they will get?"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["takes_arguments"]


def takes_arguments(func: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """False if ``func(*args, **kwargs)`` is bound to fail because of its parameters; nothing is called.

    True where that is not known: for functions without a signature, and those that hand their arguments on.
    """
    try:
        # What a decorator hands on to the function inside it is its own affair.
        signature = inspect.signature(func, follow_wrapped=False)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True
