"""Bytes to `Trace`: decoding, conventions, redaction, passage resolution and dead letters."""
