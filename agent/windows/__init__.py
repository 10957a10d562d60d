"""Rolling windows of mergeable buckets: estimates with intervals, latency, worst traces."""

from agent.windows.windows import BucketRow, Estimate, Quantile, Windows, Worst

__all__ = ["BucketRow", "Estimate", "Quantile", "Windows", "Worst"]
