"""Alert rules, their conditions in the windows, and the state machine of their alerts."""
