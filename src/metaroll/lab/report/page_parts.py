"""Parts of self-contained HTML pages: they need no network, no script, and no other file."""

from __future__ import annotations

import base64
import html
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metaroll.envs.base.canvas import png_bytes
from metaroll.lab.figures.charts import Chart, Field
from metaroll.lab.figures.plots import svg
from metaroll.training.evaluation.html_table import table
from metaroll.training.evaluation.numbers import with_interval
from metaroll.training.store.files import number_of, to_plain

__all__ = [
    "banner",
    "figure",
    "figures",
    "folded",
    "gallery",
    "page",
    "pairs",
    "percent",
    "section",
    "table",
    "text_of",
    "with_bounds",
]

_STYLE = Path(__file__).with_name("report.css").read_text("utf-8")
_CHART, _ID = re.compile(r'<svg class="chart".*?</svg>', re.DOTALL), re.compile(r' id="|href="#|url\(#')
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(title: str, lead: str, body: Iterable[str]) -> str:
    """A whole page: ``title`` and ``lead`` are text, ``body`` HTML."""
    numbers = itertools.count(1)
    # Charts of equal shape have equal ids, which must be unique in a page.
    own_ids = _CHART.sub(lambda chart: _ID.sub(rf"\g<0>chart{next(numbers)}-", chart[0]), "".join(body))
    content = f'<h1>{html.escape(title)}</h1><p class="lead">{html.escape(lead)}</p>{own_ids}'
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<link rel="icon" href="data:,"><title>{html.escape(title)}</title><style>{_STYLE}</style></head>'
        f"<body><main>{content}</main></body></html>\n"
    )


def section(title: str, content: str) -> str:
    """A heading with its content; empty if there is no content."""
    return f"<section><h2>{html.escape(title)}</h2>{content}</section>" if content else ""


def banner(text: str, good: bool, otherwise: str = "!") -> str:
    """The conclusion at the top of a page, with a mark that shows without color whether it is good.

    Args:
        text: The conclusion.
        good: Whether it is good.
        otherwise: The mark if it is not good.
    """
    kind, mark = ("verdict adapts", "✓") if good else ("verdict", otherwise)
    return f'<p class="{kind}"><span aria-hidden="true">{mark}</span> {html.escape(text)}</p>'


def folded(title: str, content: str) -> str:
    """Content that opens on a click on its title."""
    return f"<details><summary>{html.escape(title)}</summary>{content}</details>"


def gallery(pictures: Sequence[tuple[str, np.ndarray]]) -> str:
    """Pictures ``(H, W, 3)`` with their captions."""
    items = []
    for name, picture in pictures:
        data = base64.b64encode(png_bytes(picture)).decode()
        shown = html.escape(name)
        height, width = picture.shape[:2]
        image = f'<img alt="{shown}" width="{width}" height="{height}" src="data:image/png;base64,{data}">'
        items.append(f"<figure><figcaption><strong>{shown}</strong></figcaption>{image}</figure>")
    return figures(items)


def pairs(rows: Mapping[Any, Any], caption: str) -> str:
    """A table of names and values."""
    body = [[str(name), text_of(value)] for name, value in rows.items()]
    return f'<div class="plain">{table(["name", "value"], body, caption)}</div>'


def text_of(value: Any) -> str:
    """A value from a file as text for readers."""
    if isinstance(value, list | tuple):
        return ", ".join(text_of(entry) for entry in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {text_of(entry)}" for name, entry in value.items())
    value = to_plain(value) if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def figure(chart: Chart | Field) -> str:
    """A chart with its title and an explanation of its numbers."""
    picture, explanation = svg(chart)
    more = f"<span>{html.escape(explanation)}</span>" if explanation else ""
    return f"<figure><figcaption><strong>{html.escape(chart.title)}</strong>{more}</figcaption>{picture}</figure>"


def with_bounds(value: Any, low: Any = None, high: Any = None) -> tuple[str, str]:
    """A number and its interval, in the format of the terminal; the interval is empty if it is not known."""
    if math.isnan(number_of(value)):
        return "n/a", ""
    number, _, bounds = with_interval(number_of(value), [number_of(low), number_of(high)]).partition(" ")
    return number, bounds


def percent(value: Any) -> str:
    """A share in percent."""
    return f"{100 * number_of(value):.3g} %"


def figures(charts: Iterable[str], small: bool = False) -> str:
    """Figures side by side, as the width of the page allows."""
    shown = "".join(charts)
    return f'<div class="figures{" small" if small else ""}">{shown}</div>' if shown else ""
