"""What the sampler learns from traffic: low scores, new versions and rare segments."""
