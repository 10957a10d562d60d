"""A vector database and the OpenAI client, instrumented one by one.

`python -m tests.apps.app_vector_database SERVICE qdrant|chroma`: OpenLLMetry for both. No span has
the question: it is in the prompt only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from openai import OpenAI
from opentelemetry import trace
from opentelemetry.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from tests.apps.shop import (
    AGENT_REQUESTS,
    DOCUMENTS,
    TOP,
    Did,
    Request,
    base_url,
    embedding,
    prompt,
    provider,
    serve,
)

Find = Callable[[str], list[tuple[str, str, float]]]


def main(service: str, instrumentation: str) -> None:
    tracing = provider(service)
    OpenAIInstrumentor().instrument(tracer_provider=tracing)
    tracer = trace.get_tracer("shop", tracer_provider=tracing)
    find = {"qdrant": qdrant, "chroma": chroma}[instrumentation](tracing)

    def ask(request: Request, did: Did) -> None:
        client = OpenAI(base_url=base_url(), api_key="none", max_retries=0)
        with tracer.start_as_current_span("answer_question"):
            did.passages = find(request.question)
            reply = client.chat.completions.create(
                model=request.model,
                messages=[{"role": "user", "content": prompt(request.question, did.passages)}],
            )
        did.answer = reply.choices[0].message.content

    serve(tracing, ask, AGENT_REQUESTS)


def qdrant(tracing: TracerProvider) -> Find:
    from opentelemetry.instrumentation.qdrant import QdrantInstrumentor
    from qdrant_client import QdrantClient
    from qdrant_client.models import Distance, PointStruct, VectorParams

    QdrantInstrumentor().instrument(tracer_provider=tracing)
    client = QdrantClient(":memory:")
    client.create_collection(
        "pages", vectors_config=VectorParams(size=64, distance=Distance.COSINE)
    )
    client.upsert(
        "pages",
        [
            PointStruct(id=n, vector=embedding(text), payload={"id": name, "text": text})
            for n, (name, text) in enumerate(DOCUMENTS.items())
        ],
    )

    def find(question: str) -> list[tuple[str, str, float]]:
        found = client.query_points("pages", query=embedding(question), limit=TOP).points
        return [(one.payload["id"], one.payload["text"], one.score) for one in found]

    return find


def chroma(tracing: TracerProvider) -> Find:
    import chromadb
    from opentelemetry.instrumentation.chromadb import ChromaInstrumentor

    ChromaInstrumentor().instrument(tracer_provider=tracing)
    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    pages = client.create_collection("pages")
    texts = list(DOCUMENTS.values())
    pages.add(ids=list(DOCUMENTS), documents=texts, embeddings=[embedding(t) for t in texts])

    def find(question: str) -> list[tuple[str, str, float]]:
        found = pages.query(query_embeddings=[embedding(question)], n_results=TOP)
        columns = (found["ids"][0], found["documents"][0], found["distances"][0])
        return list(zip(*columns, strict=True))

    return find


if __name__ == "__main__":
    main(*sys.argv[1:])
