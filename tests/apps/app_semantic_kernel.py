"""A Semantic Kernel agent, by its own spans and log events.

`python -m tests.apps.app_semantic_kernel SERVICE _`
"""

from __future__ import annotations

import asyncio
import os
import sys

os.environ["SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE"] = "true"

from openai import AsyncOpenAI
from opentelemetry import trace
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function

from tests.apps.shop import (
    AGENT_REQUESTS,
    Did,
    Request,
    base_url,
    log_to_provider,
    provider,
    search,
    serve,
)


class Pages:
    def __init__(self, request: Request, did: Did) -> None:
        self.request, self.did = request, did

    @kernel_function(description="Search the pages of the shop.")
    def search_docs(self, query: str) -> list[str]:
        return [text for _, text, _ in search(self.request, self.did, query)]


def main(service: str, _: str) -> None:
    tracing = provider(service)
    trace.set_tracer_provider(tracing)
    logging = log_to_provider(service, "semantic_kernel")

    async def run(request: Request, did: Did) -> None:
        client = AsyncOpenAI(base_url=base_url(), api_key="none", max_retries=0)
        agent = ChatCompletionAgent(
            service=OpenAIChatCompletion(ai_model_id=request.model, async_client=client),
            name="shop_helper",
            instructions="You help the customers of a shop.",
            plugins=[Pages(request, did)],
        )
        did.answer = str((await agent.get_response(request.question)).content)

    serve(tracing, lambda request, did: asyncio.run(run(request, did)), AGENT_REQUESTS, logging)


if __name__ == "__main__":
    main(*sys.argv[1:])
