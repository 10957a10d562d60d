"""Breakdown of a mean by segment: estimates, contributions to a change, one false-discovery budget. Pure."""
