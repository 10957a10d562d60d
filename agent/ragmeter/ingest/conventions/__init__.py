"""Tracing conventions: what the attributes of a span mean, by product."""
