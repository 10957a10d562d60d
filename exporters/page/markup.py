"""HTML that is escaped unless it says that it is HTML.

`el` builds elements; a child that is not `Markup` is text and is escaped, so that forgetting to
escape is not possible. Text from traces is bounded by `clip`, and what would not be seen on a
page (control characters, bidirectional overrides, invisible tags) is shown as `⟦U+202E⟧`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Union

__all__ = ["Child", "Markup", "clip", "el", "join", "one_line", "visible"]


class Markup(str):
    """Text that is HTML already. Only `el` and `join` make it."""

    __slots__ = ()


Child = Union[str, None, Iterable["Child"]]  # noqa: UP007 - a recursive alias needs the name

VOID = frozenset({"meta", "link", "br", "hr", "path", "line", "circle", "rect", "polyline"})

# Control characters but tab and line feed; bidi marks, embeddings, overrides and isolates;
# zero-width space and BOM; line separators; lone surrogates; the invisible tag characters, which
# can hide whole instructions in an answer. Joiners (U+200C, U+200D) stay: scripts need them.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """The text with every hidden character written out."""
    return _HIDDEN.sub(lambda found: f"⟦U+{ord(found.group()):04X}⟧", text)


def clip(text: str, limit: int) -> str:
    """At most `limit` characters, then how many more there are."""
    if len(text) <= limit:
        return text
    return f"{text[:limit].rstrip()}… (+{len(text) - limit:,} characters)"


def one_line(text: str, limit: int) -> str:
    """White space run together, cut to `limit` characters with an ellipsis."""
    # Twice the limit is enough to fill it and keeps the work small for a huge text.
    flat = " ".join(text[: 2 * limit + 64].split())
    cut = len(flat) > limit or len(text) > 2 * limit + 64
    return f"{flat[:limit].rstrip()}…" if cut else flat


def el(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """An element. `class_` gives `class`, `aria_label` gives `aria-label`; None and False leave
    an attribute out, True writes it without a value.
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(f" {key}" if value is True else f' {key}="{escape(visible(str(value)))}"')
    if name in VOID:
        if children:
            raise ValueError(f"<{name}> takes no children")
        parts.append("/>")  # HTML ignores the slash; inside an SVG it is what closes the element
    else:
        parts += (">", join(*children), f"</{name}>")
    return Markup("".join(parts))


def join(*children: Child) -> Markup:
    """Children one after the other; text is escaped."""
    return Markup("".join(_flat(children)))


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, str):
            yield escape(visible(child))
        else:
            yield from _flat(child)
