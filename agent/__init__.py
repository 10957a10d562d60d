"""The agent of ragmeter: it turns traces into windows, gauges and alerts."""

from __future__ import annotations

__version__ = "0.1.0"
