"""Alerts: rules, and the state machine that turns windows into pending, firing and resolved alerts."""
