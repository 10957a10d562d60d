"""Sampling: strata, draws, the control record and budgets. Pure."""
