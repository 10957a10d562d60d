"""Canary suites: questions with known answers, sent to a service on a schedule."""
