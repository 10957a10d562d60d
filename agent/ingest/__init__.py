"""Bytes to `Trace`, a file per wire format."""
