"""Consistency: how much the answers of a service to one and the same question differ."""
