"""Texts of traces as pages show them: without hidden characters, and cut."""

from __future__ import annotations

import re

from ragmeter.core.metric_specs import spoken_name

LABEL = 80  # characters of a service, segment or id in a table

# Control characters but tab and line feed; bidi marks, embeddings, overrides and isolates;
# zero-width space and BOM; line separators; lone surrogates; the invisible tag characters, which
# can hide whole instructions in an answer. Joiners (U+200C, U+200D) stay: scripts need them.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Write out every hidden character of a text, as in `⟦U+202E⟧`."""
    return _HIDDEN.sub(lambda match: f"⟦U+{ord(match.group()):04X}⟧", text)


def clip(text: str, limit: int) -> str:
    """Cut a text to `limit` characters and say how many more there are."""
    if len(text) <= limit:
        return text
    return f"{text[:limit].rstrip()}… (+{len(text) - limit:,} characters)"


def one_line(text: str, limit: int = LABEL) -> str:
    """Collapse white space and cut the text to `limit` characters with an ellipsis."""
    # Twice the limit is enough to fill it and keeps the work small for a huge text.
    flat = " ".join(text[: 2 * limit + 64].split())
    cut = len(flat) > limit or len(text) > 2 * limit + 64
    return f"{flat[:limit].rstrip()}…" if cut else flat


def excerpt(text: str, limit: int) -> str:
    """Cut a text to `limit` characters and drop its blank lines, of which web pages are full."""
    lines = (line.strip() for line in text[: 4 * limit].splitlines())
    squeezed = "\n".join(line for line in lines if line)
    cut = len(squeezed) > limit or len(text) > 4 * limit
    return f"{squeezed[:limit].rstrip()}…" if cut else squeezed


STATE_NAMES = {
    "scored": "scored",
    "not_applicable": "does not apply",
    "sampled_out": "not measured",
    "unscored": "failed to score",
    "shed": "shed",
    "late": "late",
}
"""What is known of a score, as people read it."""


def metric_words(name: str) -> str:
    """Return the name of a metric as people read it."""
    text = (
        spoken_name(name).replace("_at_k:", " at ").replace("_usd", " (USD)").replace("_f1", " F1")
    )
    return text.replace("_", " ")
