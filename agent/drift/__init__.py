"""Drift: sequential detectors with a promised false-alarm rate, against frozen baselines."""

from agent.drift.alarm import Alarm
from agent.drift.monitor import DriftMonitor, DriftSettings
from agent.drift.reading import Source

__all__ = ["Alarm", "DriftMonitor", "DriftSettings", "Source"]
