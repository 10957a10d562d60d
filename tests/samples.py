"""What `/metrics` says, for tests that compare it."""

from __future__ import annotations

__all__ = ["samples"]


def samples(text: str) -> dict[str, float]:
    """Value by name with labels."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
