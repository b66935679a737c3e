"""Attributes of documented classes that are fields of a config."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["ConfigField"]

T = TypeVar("T")


class ConfigField(Generic[T]):
    """A field of the ``config`` of a learner, by a name of its own; to set it makes another config.

    Args:
        name: Name of the field.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, learner: None, owner: type) -> Self: ...
    @overload
    def __get__(self, learner: Any, owner: type) -> T: ...

    def __get__(self, learner: Any, owner: type) -> Self | T:
        return self if learner is None else getattr(learner.config, self.name)

    def __set__(self, learner: Any, value: T) -> None:
        learner.config = replace(learner.config, **{self.name: value})
