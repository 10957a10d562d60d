"""The HTTP endpoints of the embedded agent."""
