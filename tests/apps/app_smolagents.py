"""A smolagents agent (`python -m tests.apps.app_smolagents SERVICE _`).

Its tool joins the documents into one text, the way the library's own guide to RAG does.
"""

from __future__ import annotations

import sys

from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from smolagents import OpenAIServerModel, Tool, ToolCallingAgent

from tests.apps.shop import AGENT_REQUESTS, Did, Request, base_url, provider, search, serve


class RetrieverTool(Tool):  # type: ignore[misc]
    name = "retriever"
    description = "Retrieves the pages of the shop that are nearest to a query."
    inputs = {  # noqa: RUF012 - the library reads it from the class
        "query": {"type": "string", "description": "What to look for."}
    }
    output_type = "string"

    def __init__(self, request: Request, did: Did) -> None:
        super().__init__()
        self.request, self.did = request, did

    def forward(self, query: str) -> str:
        found = search(self.request, self.did, query)
        return "\nRetrieved documents:\n" + "".join(
            f"\n\n===== Document {n} =====\n{text}" for n, (_, text, _) in enumerate(found)
        )


def main(service: str, _: str) -> None:
    tracing = provider(service)
    SmolagentsInstrumentor().instrument(tracer_provider=tracing)

    def ask(request: Request, did: Did) -> None:
        agent = ToolCallingAgent(
            tools=[RetrieverTool(request, did)],
            model=OpenAIServerModel(
                request.model, api_base=base_url(), api_key="none", client_kwargs={"max_retries": 0}
            ),
            max_steps=4,
            verbosity_level=0,
        )
        did.answer = agent.run(request.question)

    serve(tracing, ask, AGENT_REQUESTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
