"""Texts of passages of which a trace has the ids alone."""
