"""Exports compared with the truth, in either home."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["unlike"]

TOLERANCE = 2e-9
"""Ten digits are exported, and sums of floats hang on the order in their last digits."""


def unlike(
    found: Mapping[str, float], truth: Mapping[str, float], names: Iterable[str]
) -> list[str]:
    """Of the samples with these names all that differ, one line each; what is 0 may be missing in
    the truth."""
    lines = []
    for name in names:
        if name not in found:
            lines.append(f"{name} is missing, {truth[name]} expected")
        elif name not in truth:
            if found[name]:
                lines.append(f"{name} is {found[name]}, nothing expected")
        elif abs(found[name] - truth[name]) > TOLERANCE * max(1e-3, abs(truth[name])):
            lines.append(f"{name} is {found[name]}, {truth[name]} expected")
    return lines
