"""Errors that several parts must tell apart."""

from __future__ import annotations

__all__ = ["UnknownVersion"]


class UnknownVersion(ValueError):
    """State in a format of another version: it is sound, and not ours to throw away."""
