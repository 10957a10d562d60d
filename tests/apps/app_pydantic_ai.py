"""A Pydantic AI agent (`python -m tests.apps.app_pydantic_ai SERVICE INSTRUMENTATION`).

`own` has no tool: it retrieves before it asks, and puts the passages into the prompt.
"""

from __future__ import annotations

import sys

from opentelemetry import trace
from pydantic_ai import Agent, InstrumentationSettings
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.apps.shop import AGENT_REQUESTS, Did, Request, base_url, prompt, provider, search, serve


def main(service: str, instrumentation: str) -> None:
    tracing = provider(service)
    Agent.instrument_all(InstrumentationSettings(tracer_provider=tracing))
    tracer = trace.get_tracer("shop", tracer_provider=tracing)

    def ask(request: Request, did: Did) -> None:
        model = OpenAIChatModel(
            request.model, provider=OpenAIProvider(base_url=base_url(), api_key="none")
        )
        agent = Agent(model, system_prompt="You help the customers of a shop.")
        if instrumentation == "own":
            with tracer.start_as_current_span("answer_question"):
                with tracer.start_as_current_span("retrieve"):
                    found = search(request, did, request.question)
                did.answer = agent.run_sync(prompt(request.question, found)).output
            return

        @agent.tool_plain
        def search_docs(query: str) -> list[dict[str, str]]:
            """Search the pages of the shop."""
            return [{"id": name, "text": text} for name, text, _ in search(request, did, query)]

        did.answer = agent.run_sync(request.question).output

    serve(tracing, ask, AGENT_REQUESTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
