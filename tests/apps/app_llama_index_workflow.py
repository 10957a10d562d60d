"""A LlamaIndex workflow (`python -m tests.apps.app_llama_index_workflow SERVICE _`)."""

from __future__ import annotations

import asyncio
import sys

from llama_index.core import VectorStoreIndex
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from llama_index.llms.openai_like import OpenAILike
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

from tests.apps.app_llama_index import Empty, Words
from tests.apps.shop import (
    AGENT_REQUESTS,
    DOCUMENTS,
    TOP,
    Did,
    Request,
    base_url,
    prompt,
    provider,
    serve,
)


class Retrieved(Event):
    question: str
    nodes: list[NodeWithScore]


def main(service: str, _: str) -> None:
    tracing = provider(service)
    LlamaIndexInstrumentor().instrument(tracer_provider=tracing)
    nodes = [TextNode(id_=name, text=text) for name, text in DOCUMENTS.items()]
    index = VectorStoreIndex(nodes, embed_model=Words())

    def ask(request: Request, did: Did) -> None:
        class Shop(Workflow):
            @step
            async def retrieve(self, ctx: Context, event: StartEvent) -> Retrieved:
                retriever = (
                    Empty()
                    if request.search == "empty"
                    else index.as_retriever(similarity_top_k=TOP)
                )
                found = await retriever.aretrieve(event.query)
                did.passages = [
                    (one.node.node_id, one.node.get_content(), one.score) for one in found
                ]
                return Retrieved(question=event.query, nodes=found)

            @step
            async def synthesize(self, ctx: Context, event: Retrieved) -> StopEvent:
                llm = OpenAILike(
                    model=request.model,
                    api_base=base_url(),
                    api_key="none",
                    is_chat_model=True,
                    max_retries=0,
                )
                found = [(one.node.node_id, one.node.get_content(), 0.0) for one in event.nodes]
                reply = await llm.acomplete(prompt(event.question, found))
                return StopEvent(result=str(reply))

        async def run() -> str:
            return str(await Shop(timeout=60).run(query=request.question))

        did.answer = asyncio.run(run())

    serve(tracing, ask, AGENT_REQUESTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
