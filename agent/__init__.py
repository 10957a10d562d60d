"""ragmeter's agent: traces in, windows and alerts out. Knows no Prometheus."""

__version__ = "0.1.0"
