"""Rolling windows of mergeable buckets: estimates with intervals, latency, worst traces."""

from agent.windows.records import BucketRow, Estimate, Quantile, Worst
from agent.windows.windows import Windows

__all__ = ["BucketRow", "Estimate", "Quantile", "Windows", "Worst"]
