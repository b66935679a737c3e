"""Networks of the user's own: ``module:attribute``, or what a script has given, under a name that its run keeps."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import re
import textwrap
from types import FunctionType
from typing import Any

from torch import nn

from metaroll.errors import MetarollError, UnknownNameError
from metaroll.own_code import GivenObjects, attribute_of, is_given, is_importable, is_named
from metaroll.policies.own_body import name_of
from metaroll.policies.parameters import tensors_of

__all__ = ["load_network", "name_given", "origin_given"]

_given = GivenObjects("policy", "policy", "put it into a module of Python, and train with policy module:attribute")


def name_given(network: Any, name: str | None = None) -> str:
    """A name for a network, under which this process knows it from now on.

    Args:
        network: A name (which is returned), a module, or a class or function that makes one.
        name: What to call it, even where it has a name already: a run goes on under the name that it began with.
    """
    if name is None and isinstance(network, str):
        return network
    if name is None and (found := _importable_name(network)) is not None:
        return found
    if name is None:
        name = _given.free_name(re.sub(r"\W+", "_", name_of(network)).strip("_") or "network", network)
    _given[name] = load_network(network) if isinstance(network, str) else network
    return name


def _importable_name(network: Any) -> str | None:
    """``module:attribute``, where that is ``network``."""
    if not isinstance(network, type | FunctionType) or not is_importable(network.__module__):
        return None
    name = f"{network.__module__}:{network.__qualname__}"
    if not is_named(name):
        return None
    try:
        return name if attribute_of(name, "network") is network else None
    except (MetarollError, ImportError):
        return None


def origin_given(name: str) -> dict[str, str]:
    """What ``config.yaml`` keeps of a network that a script has given: a hash.

    It is of the source of a function, or of the methods of a class, as far as there is one, and of the layers
    of a module, not of its weights. A lambda has none: its source is what stands around it, too.
    """
    texts = _texts_of(_given.get(name))
    return {"sha256": hashlib.sha256("\n".join(texts).encode()).hexdigest()} if texts else {}


def _texts_of(network: Any) -> list[str]:
    if not isinstance(network, nn.Module):
        return _sources_of(network)
    shapes = [f"{name} {tuple(value.shape)} {value.dtype}" for name, value in tensors_of(network).items()]
    kinds = dict.fromkeys(type(part) for part in network.modules())
    sources = itertools.chain.from_iterable(map(_sources_of, kinds))
    return [re.sub(r" at 0x[0-9a-fA-F]+", "", repr(network)), *shapes, *sources]


def _sources_of(given: Any) -> list[str]:
    """Of a function, or of the methods of a class, and of the classes that it is of."""
    if isinstance(given, type):
        kinds = [kind for kind in given.__mro__ if kind.__module__.partition(".")[0] not in ("builtins", "torch")]
        members = [value for kind in kinds for value in vars(kind).values()]
        methods = [each.__func__ if isinstance(each, classmethod | staticmethod) else each for each in members]
        return list(itertools.chain.from_iterable(_sources_of(m) for m in methods if isinstance(m, FunctionType)))
    if not isinstance(given, FunctionType) or given.__name__ == "<lambda>":
        return []
    try:
        return [textwrap.dedent(inspect.getsource(given)).strip()]
    except (OSError, TypeError):  # typed in, say
        return []


def load_network(name: str) -> Any:
    """What ``name`` stands for: a module, or a class or function that makes one.

    Raises:
        UnknownNameError: There is no such module of Python, or nothing of this name in it; or it names none.
        OwnCodeError: The module of Python cannot be imported.
    """
    if is_given(name):
        return _given[name]
    if not is_named(name):  # whose module would be imported, though no check has seen one
        raise UnknownNameError(f"unknown policy {name!r}: write it as module:attribute")
    return attribute_of(name, "policy")
