"""Drift: sequential detectors with a promised false-alarm rate, against frozen baselines."""
