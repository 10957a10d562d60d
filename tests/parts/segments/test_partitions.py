"""On Kafka a service is broken down in the partition that has it."""

from __future__ import annotations

from ragmeter.parts.segments.breakdown import build_document, service_breakdown

from tests.kafka.test_worker_view import reading_of, state_with


def test_a_service_is_broken_down_where_it_lives() -> None:
    pair = {
        1: state_with("bot", "shop"),
        4: state_with("wiki", first=1000, count=20, status="error"),
    }
    found = [
        build_document(service_breakdown(reading_of(states), "bot", "1h"))
        for states in (pair, {1: pair[1]})
    ]
    assert found[0] == found[1]
    assert found[0]["series"]
