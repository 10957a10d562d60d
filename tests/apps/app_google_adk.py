"""An agent of Google's ADK, by its own spans (`python -m tests.apps.app_google_adk SERVICE _`)."""

from __future__ import annotations

import asyncio
import os
import sys

from google.adk.agents import Agent
from google.adk.runners import InMemoryRunner
from google.genai import types
from opentelemetry import trace

from tests.apps.shop import AGENT_REQUESTS, Did, Request, base_url, provider, search, serve


def main(service: str, _: str) -> None:
    tracing = provider(service)
    trace.set_tracer_provider(tracing)
    os.environ["GOOGLE_GEMINI_BASE_URL"] = base_url().removesuffix("/v1")
    os.environ["GOOGLE_API_KEY"] = "none"

    async def run(request: Request, did: Did) -> None:
        def search_docs(query: str) -> dict[str, object]:
            """Search the pages of the shop."""
            found = search(request, did, query)
            return {"results": [{"id": name, "text": text} for name, text, _ in found]}

        agent = Agent(
            name="shop_helper",
            model=f"gemini-{request.model}",  # the name decides on the client
            instruction="You help the customers of a shop.",
            tools=[search_docs],
        )
        runner = InMemoryRunner(agent, app_name="shop")
        did.session = f"session-{request.name}"
        await runner.session_service.create_session(
            app_name="shop", user_id="u", session_id=did.session
        )
        message = types.Content(role="user", parts=[types.Part(text=request.question)])
        async for event in runner.run_async(
            user_id="u", session_id=did.session, new_message=message
        ):
            if event.is_final_response() and event.content and event.content.parts:
                did.answer = event.content.parts[0].text

    serve(tracing, lambda request, did: asyncio.run(run(request, did)), AGENT_REQUESTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
