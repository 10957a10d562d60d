"""The state machine of a service: scored traces, feedback and index events in; alerts out."""
