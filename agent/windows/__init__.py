"""Rolling windows of mergeable buckets: estimates with intervals, latency quantiles and worst traces."""
