"""Drift detection: sequential detectors with a bounded false-alarm rate against baselines."""
