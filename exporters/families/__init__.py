"""Declarations of every exported Prometheus metric family."""
