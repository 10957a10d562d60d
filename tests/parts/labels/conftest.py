"""The broker of the tests on a real Kafka."""

from tests.kafka.conftest import place

__all__ = ["place"]
