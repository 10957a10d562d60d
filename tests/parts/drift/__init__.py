"""Tests of the part `drift`."""
