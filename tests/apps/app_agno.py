"""An Agno agent (`python -m tests.apps.app_agno SERVICE _`)."""

from __future__ import annotations

import json
import sys

from agno.agent import Agent
from agno.models.openai import OpenAIChat
from agno.run.base import RunStatus
from openinference.instrumentation.agno import AgnoInstrumentor

from tests.apps.shop import AGENT_REQUESTS, Did, Request, base_url, provider, search, serve


def main(service: str, _: str) -> None:
    tracing = provider(service)
    AgnoInstrumentor().instrument(tracer_provider=tracing)

    def ask(request: Request, did: Did) -> None:
        def search_knowledge_base(query: str) -> str:
            """Search the pages of the shop."""
            found = search(request, did, query)
            return json.dumps([{"id": name, "content": text} for name, text, _ in found])

        did.session = f"session-{request.name}"
        agent = Agent(
            model=OpenAIChat(id=request.model, base_url=base_url(), api_key="none", max_retries=0),
            tools=[search_knowledge_base],
            session_id=did.session,
            telemetry=False,
        )
        run = agent.run(request.question)
        if run.status is RunStatus.error:
            raise RuntimeError(str(run.content))
        did.answer = run.content

    serve(tracing, ask, AGENT_REQUESTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
