"""An agent of Strands, by its own spans (`python -m tests.apps.app_strands SERVICE _`)."""

from __future__ import annotations

import sys

from opentelemetry import trace
from strands import Agent, tool
from strands.models.openai import OpenAIModel

from tests.apps.shop import AGENT_REQUESTS, Did, Request, base_url, provider, search, serve


def main(service: str, _: str) -> None:
    tracing = provider(service)
    trace.set_tracer_provider(tracing)

    def ask(request: Request, did: Did) -> None:
        @tool
        def search_docs(query: str) -> dict[str, object]:
            """Search the pages of the shop."""
            found = search(request, did, query)
            return {"status": "success", "content": [{"text": text} for _, text, _ in found]}

        did.session = f"session-{request.name}"
        agent = Agent(
            model=OpenAIModel(
                client_args={"base_url": base_url(), "api_key": "none", "max_retries": 0},
                model_id=request.model,
            ),
            tools=[search_docs],
            callback_handler=None,
            trace_attributes={"session.id": did.session},
        )
        did.answer = str(agent(request.question))

    serve(tracing, ask, AGENT_REQUESTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
