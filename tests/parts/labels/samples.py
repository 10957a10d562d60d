"""Labels as people send them, and what an agent or a partition makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ragmeter.aggregate.service_state import ServiceState
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.core.feedback import Feedback
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.kafka.scores_topic import decode_scores_message, encode_document
from ragmeter.parts.collection import document_kinds
from ragmeter.parts.labels.documents import LabelDocument, encode_labels
from ragmeter.parts.labels.part import LabelsPart

from tests.traces import START

KINDS = document_kinds(PARTS, AgentSettings())


def reported(number: int, at: float = 0, **fields: Any) -> Feedback:
    if "passages" not in fields:
        fields = {"answer": {"helpful": True}, **fields}
    return Feedback.model_validate({"trace_id": f"t{number}", "timestamp": START + at, **fields})


def send(running: EmbeddedAgent, items: Iterable[Feedback], *, live: bool = False) -> list[str]:
    """Have an agent count labels, and return what became of them."""
    documents = [LabelDocument.of(item) for item in items]
    return running.receive("labels", documents, "test", live=live)


def part_of(state: ServiceState) -> LabelsPart:
    part = state.aggregator.parts["labels"]
    assert isinstance(part, LabelsPart)
    return part


def label_record(item: Feedback, service: str = "bot") -> bytes:
    """The record of labels in the topic of the scores."""
    document = LabelDocument.of(item.model_copy(update={"service": service}))
    data = encode_labels(document)
    assert isinstance(data, bytes)
    return encode_document("labels", data, document.timestamp.timestamp())


def decode(data: bytes) -> Any:
    return decode_scores_message(data, KINDS)


def outcomes_of(counters: Iterable[tuple[Any, float]]) -> dict[str, float]:
    """What became of labels."""
    return {
        labels[0][1]: value
        for (name, labels), value in counters
        if name == "ragmeter_feedback_total"
    }
