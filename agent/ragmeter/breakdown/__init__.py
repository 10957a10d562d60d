"""Breakdown of a service by segment: estimates, differences and findings under one budget."""
