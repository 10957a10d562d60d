"""An agent of the OpenAI Agents SDK (`python -m tests.apps.app_openai_agents SERVICE _`)."""

from __future__ import annotations

import sys

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    function_tool,
)
from openai import AsyncOpenAI
from openinference.instrumentation import using_session
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

from tests.apps.shop import AGENT_REQUESTS, Did, Request, base_url, provider, search, serve


def main(service: str, _: str) -> None:
    tracing = provider(service)
    OpenAIAgentsInstrumentor().instrument(tracer_provider=tracing)

    def ask(request: Request, did: Did) -> None:
        @function_tool
        def search_docs(query: str) -> list[dict[str, object]]:
            """Search the pages of the shop."""
            found = search(request, did, query)
            return [{"id": name, "content": text, "score": score} for name, text, score in found]

        client = AsyncOpenAI(base_url=base_url(), api_key="none", max_retries=0)
        agent = Agent(
            name="Shop helper",
            instructions="You help the customers of a shop.",
            tools=[search_docs],
            model=OpenAIChatCompletionsModel(request.model, openai_client=client),
            model_settings=ModelSettings(temperature=0),
        )
        did.session = f"session-{request.name}"
        with using_session(did.session):
            did.answer = Runner.run_sync(
                agent, request.question, run_config=RunConfig(workflow_name="Shop")
            ).final_output

    serve(tracing, ask, AGENT_REQUESTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
