"""Rolling windows of mergeable buckets: estimates, latency quantiles and worst traces."""
