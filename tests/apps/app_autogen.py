"""An AutoGen AgentChat agent, by its own spans (`python -m tests.apps.app_autogen SERVICE _`)."""

from __future__ import annotations

import asyncio
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient
from opentelemetry import trace

from tests.apps.shop import AGENT_REQUESTS, Did, Request, base_url, provider, search, serve


def main(service: str, _: str) -> None:
    tracing = provider(service)
    trace.set_tracer_provider(tracing)

    async def run(request: Request, did: Did) -> None:
        async def search_docs(query: str) -> list[str]:
            """Search the pages of the shop."""
            return [text for _, text, _ in search(request, did, query)]

        client = OpenAIChatCompletionClient(
            model=request.model,
            base_url=base_url(),
            api_key="none",
            max_retries=0,
            model_info=ModelInfo(
                vision=False,
                function_calling=True,
                json_output=False,
                family="unknown",
                structured_output=False,
            ),
        )
        agent = AssistantAgent("shop_helper", client, tools=[search_docs], reflect_on_tool_use=True)
        result = await agent.run(task=request.question)
        did.answer = result.messages[-1].to_text()

    serve(tracing, lambda request, did: asyncio.run(run(request, did)), AGENT_REQUESTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
