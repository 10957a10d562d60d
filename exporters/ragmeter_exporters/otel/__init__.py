"""Export of scores to an OTLP/HTTP receiver (docs/otlp.md)."""
