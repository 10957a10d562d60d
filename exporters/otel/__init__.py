"""Export of scores to an OTLP/HTTP receiver (docs/results-export.md)."""
