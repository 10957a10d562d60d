from __future__ import annotations

from tests.ingest.conventions.samples import matches, span


def test_another_products_span_type() -> None:
    assert not matches("promptflow", span(attributes={"span_type": "LLM"}))
    assert not matches("promptflow", span(attributes={"framework": "promptflow"}))
