"""Good and bad events of the configured objectives, for burn rates in Prometheus."""
