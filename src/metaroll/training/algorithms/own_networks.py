"""Users' networks: ``module:attribute``, or objects that a script passes, under names that their runs keep."""

from __future__ import annotations

import itertools
import re
from types import FunctionType
from typing import Any

from torch import nn

from metaroll.errors import MetarollError, UnknownNameError
from metaroll.own_code import GivenObjects, attribute_of, is_given, is_importable, is_named
from metaroll.own_sources import hash_of, sources_of
from metaroll.policies.own_body import name_of
from metaroll.policies.parameters import tensors_of

__all__ = ["load_network", "name_given", "origin_given"]

_given = GivenObjects("policy", "policy", "put it into a module of Python, and train with policy module:attribute")


def name_given(network: Any, name: str | None = None) -> str:
    """Register a network in this process; returns its name.

    Args:
        network: A name (which is returned), a module, or a class or function that makes one.
        name: Name to register it under, even if it has another one: a run keeps the name that it began with.
    """
    if name is None and isinstance(network, str):
        return network
    if name is None and (importable := _importable_name(network)) is not None:
        return importable
    if name is None:
        name = _given.free_name(re.sub(r"\W+", "_", name_of(network)).strip("_") or "network", network)
    _given[name] = load_network(network) if isinstance(network, str) else network
    return name


def _importable_name(network: Any) -> str | None:
    """``module:attribute`` if an import of that gives ``network``; else ``None``."""
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
    """The entry of ``config.yaml`` for a network that a script has passed: a hash.

    For a function or class it is the hash of its source (see ``sources_of``), for a module that of its layers, without
    the weights.
    """
    network = _given.get(name)
    if not isinstance(network, nn.Module):
        return hash_of(sources_of(network))
    shapes = [f"{name} {tuple(value.shape)} {value.dtype}" for name, value in tensors_of(network).items()]
    kinds = dict.fromkeys(type(part) for part in network.modules())
    return hash_of([repr(network), *shapes, *itertools.chain.from_iterable(map(sources_of, kinds))])


def load_network(name: str) -> Any:
    """The object of ``name``: a module, or a class or function that makes one.

    Raises:
        UnknownNameError: The name has another form, or there is no such Python module or attribute.
        OwnCodeError: The Python module cannot be imported.
    """
    if is_given(name):
        return _given[name]
    if not is_named(name):  # otherwise a module would be imported that was not checked
        raise UnknownNameError(f"unknown policy {name!r}: write it as module:attribute")
    return attribute_of(name, "policy")
