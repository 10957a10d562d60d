"""A LlamaIndex application (`python -m tests.apps.app_llama_index SERVICE INSTRUMENTATION`)."""

from __future__ import annotations

import sys

from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.llms.openai_like import OpenAILike
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

from tests.apps.shop import DOCUMENTS, TOP, Did, Request, base_url, embedding, provider, serve


class Words(BaseEmbedding):
    def _get_text_embedding(self, text: str) -> list[float]:
        return embedding(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return embedding(query)


class Broken(BaseRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        raise ConnectionError("the index is away")


class Empty(BaseRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return []


class Noting(BaseNodePostprocessor):
    """Sees the passages before the model does, so that they are known where the model fails."""

    did: Did

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        self.did.passages = [(one.node.node_id, one.node.get_content(), one.score) for one in nodes]
        return nodes


def main(service: str, _: str) -> None:
    tracing = provider(service)
    LlamaIndexInstrumentor().instrument(tracer_provider=tracing)
    nodes = [TextNode(id_=name, text=text) for name, text in DOCUMENTS.items()]
    index = VectorStoreIndex(nodes, embed_model=Words())

    def ask(request: Request, did: Did) -> None:
        retriever = {"fails": Broken(), "empty": Empty()}.get(request.search)
        engine = RetrieverQueryEngine.from_args(
            retriever or index.as_retriever(similarity_top_k=TOP),
            llm=OpenAILike(
                model=request.model,
                api_base=base_url(),
                api_key="none",
                is_chat_model=True,
                timeout=request.timeout,
                max_retries=0,
                additional_kwargs=(
                    {"stream_options": {"include_usage": True}} if request.streamed else {}
                ),
            ),
            streaming=request.streamed,
            node_postprocessors=[Noting(did=did)],
        )
        reply = engine.query(request.question)
        did.answer = "".join(reply.response_gen) if request.streamed else str(reply)

    serve(tracing, ask)


if __name__ == "__main__":
    main(*sys.argv[1:])
