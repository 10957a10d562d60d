"""Operator functions on kafka-python: nothing here runs in a worker."""
