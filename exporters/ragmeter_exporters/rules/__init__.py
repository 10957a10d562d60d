"""The rules for Prometheus: burn rates of error budgets, and the health of the agent."""
