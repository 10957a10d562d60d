"""What all tests share: how patient the property tests are."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine and nothing about the property; what
# hangs is ended by the time limit of a test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
