"""A table in HTML, for pages and notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["in_notebook", "table"]


def table(head: Sequence[str], body: Iterable[Sequence[str]], caption: str) -> str:
    """A table that scrolls in its own box where it is too wide."""
    heads = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    rows = ""
    for first, *cells_after in body:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells_after)
        rows += f'<tr><th scope="row">{html.escape(first)}</th>{cells}</tr>'
    label = html.escape(caption)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table><caption>{label}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def in_notebook(text: str, head: Sequence[str], body: Iterable[Sequence[str]], caption: str) -> str:
    """``_repr_html_`` of objects shown as a few lines of ``text`` and a table; other arguments as for ``table``."""
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in text.splitlines())
    return f'<div style="max-width:60em;max-height:36em;overflow:auto">{lines}{table(head, body, caption)}</div>'
