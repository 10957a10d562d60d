"""An agent of Semantic Kernel, by its own spans (`python -m tests.apps.app_semantic_kernel SERVICE _`).

It sends content as log events.
"""

from __future__ import annotations

import asyncio
import os
import sys

os.environ["SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE"] = "true"

from openai import AsyncOpenAI  # noqa: E402
from opentelemetry import trace  # noqa: E402
from semantic_kernel.agents import ChatCompletionAgent  # noqa: E402
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion  # noqa: E402
from semantic_kernel.functions import kernel_function  # noqa: E402

from tests.apps.shop import (  # noqa: E402
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
