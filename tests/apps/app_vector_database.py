"""A vector database and the OpenAI client, instrumented one by one.

`python -m tests.apps.app_vector_database SERVICE qdrant|chroma|milvus`: by OpenLLMetry, with
`openlit_` before the name by OpenLIT. No span has the question: it is in the prompt only.
"""

from __future__ import annotations

import atexit
import sys
import tempfile
from collections.abc import Callable

from openai import OpenAI
from opentelemetry import trace
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
    maker, _, name = instrumentation.rpartition("_")
    tracing = with_openlit(service) if maker else with_openllmetry(service, name)
    tracer = trace.get_tracer("shop", tracer_provider=tracing)
    find = {"qdrant": qdrant, "chroma": chroma, "milvus": milvus}[name]()

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


def with_openllmetry(service: str, name: str) -> TracerProvider:
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    tracing = provider(service)
    OpenAIInstrumentor().instrument(tracer_provider=tracing)
    if name == "qdrant":
        from opentelemetry.instrumentation.qdrant import QdrantInstrumentor

        QdrantInstrumentor().instrument(tracer_provider=tracing)
    elif name == "chroma":
        from opentelemetry.instrumentation.chromadb import ChromaInstrumentor

        ChromaInstrumentor().instrument(tracer_provider=tracing)
    else:
        from opentelemetry.instrumentation.milvus import MilvusInstrumentor

        MilvusInstrumentor().instrument(tracer_provider=tracing)
    return tracing


def with_openlit(service: str) -> TracerProvider:
    import openlit

    openlit.init(service_name=service)
    tracing = trace.get_tracer_provider()
    assert isinstance(tracing, TracerProvider)
    return tracing


def qdrant() -> Find:
    from qdrant_client import QdrantClient
    from qdrant_client.models import Distance, PointStruct, VectorParams

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


def chroma() -> Find:
    import chromadb

    client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
    pages = client.create_collection("pages")
    texts = list(DOCUMENTS.values())
    pages.add(ids=list(DOCUMENTS), documents=texts, embeddings=[embedding(t) for t in texts])

    def find(question: str) -> list[tuple[str, str, float]]:
        found = pages.query(query_embeddings=[embedding(question)], n_results=TOP)
        columns = (found["ids"][0], found["documents"][0], found["distances"][0])
        return list(zip(*columns, strict=True))

    return find


def milvus() -> Find:
    from pymilvus import MilvusClient

    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    client = MilvusClient(f"{folder.name}/pages.db")
    client.create_collection("pages", dimension=64, id_type="string", max_length=64)
    client.insert(
        collection_name="pages",
        data=[
            {"id": name, "vector": embedding(text), "text": text}
            for name, text in DOCUMENTS.items()
        ],
    )

    def find(question: str) -> list[tuple[str, str, float]]:
        found = client.search(
            collection_name="pages", data=[embedding(question)], limit=TOP, output_fields=["text"]
        )
        return [(one["id"], one["entity"]["text"], one["distance"]) for one in found[0]]

    return find


if __name__ == "__main__":
    main(*sys.argv[1:])
