"""Results out: each score as OpenTelemetry, to an OTLP/HTTP receiver (docs/results-export.md)."""

from exporters.otel.exporter import ResultsExporter

__all__ = ["ResultsExporter"]
