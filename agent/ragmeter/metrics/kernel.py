"""The native text kernel: `compiled`, or None where ragmeter was installed without a compiler."""

from __future__ import annotations

try:
    from ragmeter.metrics import compiled as compiled
except ImportError:  # installed from source without a compiler
    compiled = None  # type: ignore[assignment]
