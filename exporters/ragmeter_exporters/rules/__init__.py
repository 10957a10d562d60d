"""The rules for Prometheus: those of the parts, and the health of the agent."""
