"""Real bodies: both forms give the same spans."""

from __future__ import annotations

from ragmeter.ingest.otlp import decode_traces
from ragmeter.ingest.otlp.json_format import is_json_body

from tests.ingest.otlp.bodies import WIRE


def test_protobuf_and_json_of_the_same_requests_give_the_same_spans() -> None:
    lines = (WIRE / "genai.jsonl").read_bytes().splitlines()
    assert len(lines) == 3
    for number, line in enumerate(lines, 1):
        body = (WIRE / f"genai-{number}.pb").read_bytes()
        assert is_json_body(line)
        assert not is_json_body(body)
        read = decode_traces(body, json=False)
        assert read.spans == decode_traces(line, json=True).spans
        assert read.spans
        assert not read.rejected
        for span in read.spans:
            assert span.resource["service.name"] == "acme-help-bot"
            assert span.scope == "opentelemetry.instrumentation.genai.langchain"
            assert 0 < span.start < span.end
            assert isinstance(span.attributes.get("gen_ai.operation.name"), str)


def test_plain_protobuf_json_as_a_product_sends_it() -> None:
    chat = (WIRE / "langwatch-openllmetry-openai-chat.otlp-protojson.json").read_bytes()
    (span,) = decode_traces(chat, json=True).spans
    assert (span.trace_id, span.span_id) == ("8615098c2c72e72330e800ef3ab1d8b8", "0f69feaecfced498")
    assert (span.kind, span.start) == (3, 1722866602559872000)
    assert span.attributes["gen_ai.system"] == "OpenAI"
    noise = (WIRE / "langwatch-fastapi-http-noise.otlp-protojson.json").read_bytes()
    child, root = decode_traces(noise, json=True).spans
    assert (child.trace_id, child.parent_id) == (root.trace_id, root.span_id)
