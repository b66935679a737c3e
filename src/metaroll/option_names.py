"""Names of options: resolves names of other libraries, former names and misspellings to existing options."""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from metaroll.concepts import CONCEPTS, Concept, concept_names, concepts_named
from metaroll.errors import UnknownNameError, flag_of, for_reader, option_name, option_text, unknown_name

__all__ = [
    "GIVEN",
    "Absent",
    "Named",
    "frames_of_ours",
    "names_here",
    "near_options",
    "understood",
    "unknown_options",
    "value_here",
]

Absent = bool | Literal["learner"]
"""Whether ``options`` are complete for an algorithm or its learner, so that hints can name missing concepts."""

GIVEN = "the options"
"""Source of values that were typed, as flags or keywords, rather than written into a file."""


class Named(Protocol):
    """The needed members of an option: its name, and the one before (empty for none)."""

    @property
    def name(self) -> str: ...

    @property
    def was(self) -> str: ...


def understood(
    values: Mapping[str, Any],
    options: Iterable[Named],
    written: Callable[[str], str] = str,
    *,
    of_run: bool = False,
) -> tuple[dict[str, Any], dict[str, str]]:
    """``values`` with the names of their options, instead of those of other libraries or of former versions.

    What is not an option under any name stays unchanged, for ``unknown_options``.

    Args:
        values: Name -> value.
        options: All options there are.
        written: How an option of that name is written, for messages.
        of_run: See ``names_here``.

    Returns:
        The values, and for options that were given by another name: name here -> that name (for ``named_as``).

    Raises:
        ValueError: One option is given twice, by two names.
    """
    options = list(options)
    result: dict[str, Any] = {}
    source: dict[str, str] = {}
    for alias, value in values.items():
        for name in names_here(alias, options, written, of_run=of_run):
            if name in source:
                raise ValueError(
                    f"{written(name)} is given twice, by {written(source[name])} and {written(alias)}: keep one"
                )
            source[name], result[name] = alias, value_here(alias, name, value, written)
    return result, {name: alias for name, alias in source.items() if name != alias}


def names_here(
    alias: str, options: Sequence[Named], written: Callable[[str], str] = str, *, of_run: bool = False
) -> list[str]:
    """The options that ``alias`` means; itself, if that is not known. Of a former name is warned.

    A documented one never changes. With ``of_run``, where the options of all algorithms look alike, there is a warning
    if others have an option of this name that is something else; documented constructors have only one.
    """
    names = {option.name for option in options}
    if alias in names:
        return [alias]
    former = [option.name for option in options if option.was == alias]
    if former and any(alias in concept.documented for concept in concepts_named(alias)):
        other = [concept.name for concept in CONCEPTS if alias in concept.fields]
        if of_run and other:
            means = next(concept.name for concept in concepts_named(alias) if alias in concept.documented)
            warnings.warn(
                f"{written(alias)} is called {written(former[0])} here, and means {means}, "
                f"not {other[0]} as for other algorithms",
                DeprecationWarning,
                stacklevel=frames_of_ours(),
            )
        return former
    for concept in concepts_named(alias):
        here = [field for field in concept.fields if field in names]
        means_it = alias in concept.taken or (alias in concept.documented and alias not in concept.near)
        if here and means_it and names.isdisjoint(concept.unless):
            return here
    for name in former:
        warnings.warn(
            f"{written(alias)} is called {written(name)} now; the old name will be an error in version 0.4",
            DeprecationWarning,
            stacklevel=frames_of_ours(),
        )
        return [name]
    return [alias]


def value_here(alias: str, name: str, value: Any, written: Callable[[str], str] = str) -> Any:
    """``value`` of the name ``alias`` of another library as the value of the option ``name`` that it means.

    Raises:
        ValueError: It takes more than one option.
    """
    for concept in concepts_named(alias) if isinstance(value, str) else ():
        if name in concept.fields and alias in concept.taken:
            if value in concept.values:
                return concept.values[value]
            if concept.values and not _NUMBER.fullmatch(value):
                texts = [text for text in concept.values if value.startswith(f"{text}_")]
                hint = f": {_with_options(concept.more)}" if texts and concept.more else ""
                known = " or ".join(map(repr, concept.values))
                raise ValueError(f"{written(alias)} must be a number or {known}, got {value!r}{hint}")
    return value


_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?|None|nan|[-+]?inf|")
"""Texts of a number, or of none, in files and after flags; all others are passed to the option unchanged."""


def frames_of_ours() -> int:
    """``stacklevel`` of a warning that is about the code of the caller of this library."""
    frame, count = sys._getframe(1), 1
    ours = ("metaroll", "contextlib")  # which lies between them where a context is entered
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ours:
        frame, count = frame.f_back, count + 1
    return count


def near_options(
    name: str,
    value: str,
    known: Iterable[str],
    written: Callable[[str], str] = option_text,
    *,
    notes: bool = True,
    absent: Absent = True,
    foreign: bool = True,
) -> str:
    """A sentence on the likely meaning of an option that is not ``known``; empty where there is no guess.

    Args:
        name: The typed name, with dashes or underscores.
        value: Its value at the command line; empty for none.
        known: Names of all options there are, dashes or underscores.
        written: How an option of that name is written.
        notes: Add how it is used.
        absent: The options are all there are of an algorithm (of a ``"learner"``: but for what it is made of and run
            with), so that a hint can name what has no option.
        foreign: Names of other libraries are taken.
    """
    known = list(known)
    plain = _plain(name)
    texts = {_plain(option): option for option in known}
    if plain in ("set", "override", "o", "opt", "option", "param", "hparam"):
        other, equals, rest = value.partition("=")
        example = f"{flag_of(other)} {rest}" if equals and other else "--epochs 20"
        return f"every option is a flag of its own: {example}" + _unknown_there(other, known)
    if plain in texts:  # but for its dashes
        return f"did you mean {written(plain)}?"
    concepts = concepts_named(plain)
    there = [concept for concept in concepts if any(field in texts for field in concept.here)]
    if there:
        fields = dict.fromkeys(field for concept in there for field in concept.here if field in texts)
        note = for_reader(there[0].in_python or there[0].note, there[0].note) if notes else ""
        return f"did you mean {' or '.join(map(written, fields))}?" + (f" ({note})" if note else "")
    if concepts:  # a known name is not a misspelling of another
        return _answer_without_field(concepts, texts, absent) if absent else ""
    here = [concept for concept in CONCEPTS if not texts.keys().isdisjoint(concept.fields)]
    taken = {other for concept in here if texts.keys().isdisjoint(concept.unless) for other in concept.taken}
    near = _alike(plain, texts.keys() | (taken if foreign else set()), cutoff=0.75)
    if not near and absent and (known_name := _alike(plain, concept_names(), cutoff=0.85)):
        return near_options(known_name[0], value, known, written, notes=notes, absent=absent, foreign=foreign)
    near = near or _alike(plain, texts.keys(), cutoff=0.65) or _longer(plain, texts.keys())
    meant = {match: [match] if match in texts else _fields_of(match, here, texts) for match in near}
    near = [match for match in near if meant[match] not in [meant[other] for other in near[: near.index(match)]]]
    if not near:
        return ""
    texts_near = [", ".join(map(_bare(written), meant[match])) for match in near if match not in texts]
    names = f" ({'; '.join(texts_near)} here)" if texts_near else ""
    return f"did you mean {' or '.join(written(match) for match in near)}?{names}"


def _bare(written: Callable[[str], str]) -> Callable[[str], str]:
    """The spelling of an option's name without a value."""
    return option_name if written is option_text else written


def _alike(name: str, known: Iterable[str], cutoff: float) -> list[str]:
    """Up to 3 of the ``known`` names that ``name`` may be a misspelling of, the nearest first.

    Each word must be like the one in its place: ``num_layers`` is no misspelled ``num_workers``.
    """
    joined, words = name.replace("_", ""), name.split("_")
    others = [
        other for other in sorted(known) if other.replace("_", "") == joined or _words_alike(words, other.split("_"))
    ]
    return difflib.get_close_matches(name, others, n=3, cutoff=cutoff)


def _words_alike(words: Sequence[str], others: Sequence[str]) -> bool:
    return len(words) == len(others) and all(
        difflib.SequenceMatcher(None, word, other).ratio() >= (0.6 if len(other) < _SHORT_WORD else 0.7)
        for word, other in zip(words, others, strict=True)
    )


_SHORT_WORD = 6
"""Characters of a word in which one misspelled letter is a large share."""


def _longer(name: str, known: Iterable[str]) -> list[str]:
    """Up to 3 of the ``known`` names that have all words of ``name``, and more: a name with words left out."""
    words = set(name.split("_"))
    return difflib.get_close_matches(name, [n for n in sorted(known) if words <= set(n.split("_"))], n=3, cutoff=0.65)


def _fields_of(name: str, concepts: Iterable[Concept], known: Iterable[str]) -> list[str]:
    """The options that a name of another library means, among those that are known."""
    fields = (field for concept in concepts if name in concept.taken for field in concept.fields if field in known)
    return list(dict.fromkeys(fields))


def _answer_without_field(concepts: Sequence[Concept], known: Collection[str], absent: Absent) -> str:
    """The hint for concepts of which no option is ``known``; of a learner empty where nothing is sure."""
    outside = [concept.outside for concept in concepts if concept.outside and absent == "learner"]
    for text in (*outside, *(_text_without_field(concept, known, absent) for concept in concepts)):
        if text:
            return _with_options(text)
    return "" if absent == "learner" else f"there is no counterpart here ({concepts[0].name})"


def _text_without_field(concept: Concept, known: Collection[str], absent: Absent) -> str:
    """The first text that is true beside the options that are ``known``."""
    if not concept.fields and absent != "learner" and (there := for_reader(concept.in_python, "")):
        return there
    beside = [text for field, text in concept.absent_beside.items() if field in known]
    return next((text for text in (*beside, concept.absent) if set(_OPTION.findall(text)) <= set(known)), "")


_OPTION = re.compile(r"\{(\w+)\}")
"""An option in a text of a concept, written as ``{temperature}``."""


def _with_options(text: str) -> str:
    """A text of a concept, with its options as their user writes them."""
    return _OPTION.sub(lambda match: option_name(match[1]), text)


_FLAGS_ALONE = ("out", "quiet", "tasks", "jobs", "json", "traceback", "config")
"""Flags of commands that no file holds."""


def _of_the_command_line(name: str) -> str:
    """The hint for a name in a file that means one of the flags; empty for others, and in Python."""
    names = {_plain(name)} | {here for concept in concepts_named(_plain(name)) for here in concept.here}
    flags = [f"--{flag}" for flag in _FLAGS_ALONE if flag in names]
    return for_reader("", f"it is no option of a run: give {flags[0]} at the command line") if flags else ""


def unknown_options(
    values: Iterable[str], known: Iterable[str], where: str, *, absent: Absent = True
) -> UnknownNameError | None:
    """Error for the names in ``values`` that are no options, all at once; ``None`` if there are none.

    Args:
        values: Names that were given.
        known: Names of all options there are.
        where: Their source.
        absent: See ``near_options``.
    """
    known = list(known)
    wrong = [str(name) for name in values if name not in known]
    if not wrong:
        return None
    typed = where == GIVEN
    write = option_text if typed else repr
    hints = {
        name: (not typed and _of_the_command_line(name))
        or near_options(name, "", known, write, notes=typed, absent=absent)
        for name in wrong
    }
    place = "" if typed else f" (in {where})"
    if len(wrong) == 1:
        if not hints[wrong[0]]:
            return unknown_name(f"option{place}", wrong[0], known, guess=False)
        return UnknownNameError(f"unknown option{place} {wrong[0]!r}; {hints[wrong[0]]}")
    listed = [f"{name!r}: {hint or 'nothing here is like it'}" for name, hint in hints.items()]
    return UnknownNameError(f"unknown options{place} {'; '.join(listed)}")


def _plain(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()


def _unknown_there(name: str, known: Iterable[str]) -> str:
    """A further guess, if ``name`` is not an option, either."""
    missing = name and _plain(name) not in map(_plain, known)
    guess = near_options(name, "", known) if missing else ""
    return f"; of {flag_of(name)}, {guess}" if guess else ""
