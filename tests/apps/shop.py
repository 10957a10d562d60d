"""What the applications have in common: documents, requests, export, and saying what they did.

It imports nothing but the SDK at the top: the tests read the requests from here too.
"""

from __future__ import annotations

import json
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

__all__ = [
    "AGENT_REQUESTS",
    "BROKEN",
    "DOCUMENTS",
    "MODEL",
    "REQUESTS",
    "SLOW",
    "TOP",
    "Did",
    "Request",
    "base_url",
    "embedding",
    "log_to_provider",
    "prompt",
    "provider",
    "search",
    "serve",
]

MODEL = "stub-1"
SLOW = "slow-1"
BROKEN = "broken-1"
TOP = 3
DOCUMENTS = {
    "kb-refunds": "Refunds take five days after the parcel has reached our warehouse.",
    "kb-returns": "Returns are free for thirty days; the label is in the parcel.",
    "kb-warranty": "The warranty covers defects of material for twenty-four months.",
    "kb-shipping": "Shipping to islands takes two days longer than to the mainland.",
    "kb-vouchers": "Vouchers cannot be paid out, and are valid for three years.",
}


@dataclass(frozen=True)
class Request:
    """`search` is what retrieval does: find passages, find none, or fail."""

    name: str
    question: str
    model: str = MODEL
    streamed: bool = False
    search: str = "works"

    @property
    def timeout(self) -> float:
        """Seconds: short only for what must time out, so that no slow machine does."""
        return 1.5 if self.model == SLOW else 60


REQUESTS = (
    Request("plain", "How long do refunds take after the parcel came?"),
    Request("again", "What does the warranty cover?"),
    Request("stream", "Is shipping to islands slower?", streamed=True),
    Request("nothing", "Who won the football match?", search="empty"),
    Request("timeout", "Are returns free for thirty days?", model=SLOW),
    Request("error", "Can vouchers be paid out?", model=BROKEN),
    Request("search-error", "Where is the warehouse?", search="fails"),
)

# Of the agents: what a failed retrieval does to one, its framework and its model decide.
AGENT_REQUESTS = tuple(
    request for request in REQUESTS if request.name in ("plain", "again", "nothing", "error")
)


@dataclass
class Did:
    """What the application did for a request: the passages as (id, text, score) in the order in
    which the model was shown them, None where retrieval failed."""

    name: str
    passages: list[tuple[str, str, float | None]] | None = None
    answer: str | None = None
    status: str = "ok"
    error: str | None = None
    session: str | None = None


def search(request: Request, did: Did, query: str) -> list[tuple[str, str, float]]:
    """Find the nearest passages, and note them."""
    if request.search == "fails":
        raise ConnectionError("the index is away")
    found = []
    if request.search == "works":
        asked = embedding(query)
        for name, text in DOCUMENTS.items():
            score = sum(a * b for a, b in zip(asked, embedding(text), strict=True))
            found.append((name, text, score))
        found = sorted(found, key=lambda one: -one[2])[:TOP]
    did.passages = list(found)
    return found


def prompt(question: str, found: Sequence[tuple[str, str, float]]) -> str:
    """The prompt of who retrieves before the model is asked."""
    context = "\n".join(f"[{n}] {text}" for n, (_, text, _) in enumerate(found, 1))
    return f"Answer from the context only.\n\nContext:\n{context}\n\nQuestion: {question}"


def embedding(text: str) -> list[float]:
    """A bag of words, hashed: near where words are shared."""
    vector = [0.0] * 64
    for word in re.findall(r"\w+", text.lower()):
        vector[zlib.crc32(word.encode()) % 64] += 1
    return vector


def provider(service: str) -> TracerProvider:
    """Sends as applications do: in batches, by the endpoint of the environment."""
    found = TracerProvider(resource=Resource.create({"service.name": service}))
    found.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return found


def causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []  # those of CrewAI go in a circle
    while error is not None and error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def log_to_provider(service: str, *loggers: str) -> LoggerProvider:
    """Send the records of loggers, as frameworks do whose content is in log events."""
    found = LoggerProvider(resource=Resource.create({"service.name": service}))
    found.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    for name in loggers:
        logging.getLogger(name).addHandler(LoggingHandler(logger_provider=found))
        logging.getLogger(name).setLevel(logging.INFO)
    return found


def serve(
    tracing: TracerProvider,
    ask: Callable[[Request, Did], None],
    requests: Sequence[Request] = REQUESTS,
    logs: LoggerProvider | None = None,
) -> None:
    """Serve every request, print a line of JSON for each, and leave when all spans are out."""
    for request in requests:
        did = Did(request.name)
        try:
            ask(request, did)
        except Exception as error:
            names = [type(one).__name__ for one in causes(error)]
            did.status = "timeout" if any("Timeout" in name for name in names) else "error"
            did.error = f"{type(error).__name__}: {error}"
        print(json.dumps(asdict(did)), flush=True)
    if logs is not None:
        logs.shutdown()
    tracing.shutdown()


def base_url() -> str:
    """Of the model's server."""
    return os.environ["MODEL_URL"]
