"""Composition roots: the only folder that imports exporters."""
