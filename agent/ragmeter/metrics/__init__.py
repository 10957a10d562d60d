"""Formulas of all metrics: pure functions of a trace, labels or verdicts."""
