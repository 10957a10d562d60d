"""From the text of an answer to its one JSON object, strictly.

Allowed around it: white space; the thoughts of a reasoning model (`<think>...</think>`) before
it; one code fence, with remarks outside of the fence. Everything else is an error: remarks around
a bare object, two fences, two objects, a property twice, NaN. What a strict reader refuses costs
one more call; what a lenient one guesses could be taken from a quoted passage.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["Malformed", "parse"]


class Malformed(ValueError):
    """No answer can be read. The text tells the judge why and quotes nothing of the answer."""


FENCE = "```"


def parse(text: str) -> dict[str, Any]:
    """The JSON object of an answer. Raises `Malformed`, whatever the text is."""
    stripped = text.strip()
    if not stripped:
        raise Malformed("the answer is empty")
    if not stripped.startswith("{"):
        stripped = _unfenced(_without_thoughts(stripped))
    try:
        value = json.loads(
            stripped, object_pairs_hook=_each_property_once, parse_constant=_no_constant
        )
    except Malformed:
        raise
    except RecursionError:
        raise Malformed("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise Malformed("something follows the JSON object") from None
        raise Malformed(f"not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:  # a number of thousands of digits
        raise Malformed("a number is too long") from None
    if not isinstance(value, dict):
        raise Malformed("a JSON object is needed, not another JSON value")
    return value


def _without_thoughts(text: str) -> str:
    # some chat templates write the opening tag themselves, and only the closing one is answered
    thoughts, closed, rest = text.rpartition("</think>")
    if closed and ("<think>" not in thoughts or thoughts.startswith("<think>")):
        return rest.strip()
    if text.startswith("<think>"):
        raise Malformed("the thoughts do not end")
    return text


def _unfenced(text: str) -> str:
    if FENCE not in text:
        if not text.startswith("{"):
            raise Malformed("the answer must be only a JSON object")
        return text
    if text.startswith("{"):
        return text
    parts = text.split(FENCE)
    if len(parts) != 3:
        raise Malformed("there must be one JSON object in at most one code fence")
    inside = parts[1]
    language, newline, body = inside.partition("\n")
    if newline and language.strip().lower() in ("", "json"):
        inside = body
    else:
        inside = inside.removeprefix("json")
    return inside.strip()


def _each_property_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise Malformed("a property stands there twice")
    return out


def _no_constant(name: str) -> None:
    raise Malformed("NaN and Infinity are no JSON")
