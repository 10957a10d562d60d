"""A Haystack application (`python -m tests.apps.app_haystack SERVICE INSTRUMENTATION`)."""

from __future__ import annotations

import sys

from haystack import Document, Pipeline, component
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage, StreamingChunk
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.utils import Secret
from openinference.instrumentation.haystack import HaystackInstrumentor

from tests.apps.shop import DOCUMENTS, TOP, Did, Request, base_url, provider, serve

PROMPT = """Answer from these passages only:
{% for one in documents %}[{{ loop.index }}] {{ one.content }}
{% endfor %}
Question: {{ question }}"""


@component
class BrokenRetriever:
    @component.output_types(documents=list[Document])
    def run(self, query: str) -> dict[str, list[Document]]:
        raise ConnectionError("the index is away")


@component
class EmptyRetriever:
    @component.output_types(documents=list[Document])
    def run(self, query: str) -> dict[str, list[Document]]:
        return {"documents": []}


@component
class Noting:
    """Sees the passages before the model does, so that they are known where the model fails."""

    def __init__(self, did: Did) -> None:
        self.did = did

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, list[Document]]:
        self.did.passages = [(one.id, str(one.content), one.score) for one in documents]
        return {"documents": documents}


def main(service: str, _: str) -> None:
    tracing = provider(service)
    HaystackInstrumentor().instrument(tracer_provider=tracing)
    store = InMemoryDocumentStore()
    store.write_documents([Document(id=name, content=text) for name, text in DOCUMENTS.items()])

    def ask(request: Request, did: Did) -> None:
        def chunk(_: StreamingChunk) -> None:
            pass

        retriever = {"fails": BrokenRetriever, "empty": EmptyRetriever}.get(request.search)
        pipeline = Pipeline()
        pipeline.add_component(
            "retriever", retriever() if retriever else InMemoryBM25Retriever(store, top_k=TOP)
        )
        pipeline.add_component("noting", Noting(did))
        pipeline.add_component(
            "prompt",
            ChatPromptBuilder([ChatMessage.from_user(PROMPT)], required_variables="*"),
        )
        pipeline.add_component(
            "llm",
            OpenAIChatGenerator(
                model=request.model,
                api_key=Secret.from_token("none"),
                api_base_url=base_url(),
                timeout=request.timeout,
                max_retries=0,
                streaming_callback=chunk if request.streamed else None,
                generation_kwargs=(
                    {"stream_options": {"include_usage": True}} if request.streamed else {}
                ),
            ),
        )
        pipeline.connect("retriever", "noting")
        pipeline.connect("noting", "prompt.documents")
        pipeline.connect("prompt.prompt", "llm.messages")
        found = pipeline.run(
            {"retriever": {"query": request.question}, "prompt": {"question": request.question}}
        )
        did.answer = found["llm"]["replies"][0].text

    serve(tracing, ask)


if __name__ == "__main__":
    main(*sys.argv[1:])
