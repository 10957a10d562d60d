"""The agent's alert rules as Prometheus rules."""
