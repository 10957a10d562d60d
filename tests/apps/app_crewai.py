"""A CrewAI crew whose model is not instrumented (`python -m tests.apps.app_crewai SERVICE _`)."""

from __future__ import annotations

import os
import sys

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false")

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from openinference.instrumentation.crewai import CrewAIInstrumentor

from tests.apps.shop import (
    AGENT_REQUESTS,
    Did,
    Request,
    base_url,
    provider,
    search,
    serve,
)


def main(service: str, _: str) -> None:
    tracing = provider(service)
    CrewAIInstrumentor().instrument(tracer_provider=tracing)

    def ask(request: Request, did: Did) -> None:
        @tool("search_docs")  # type: ignore[untyped-decorator]
        def search_docs(query: str) -> list[str]:
            """Search the pages of the shop."""
            return [text for _, text, _ in search(request, did, query)]

        agent = Agent(
            role="Shop helper",
            goal="Answer the customers of a shop",
            backstory="You know the pages of the shop.",
            tools=[search_docs],
            llm=LLM(
                model=f"openai/{request.model}",
                base_url=base_url(),
                api_key="none",
                max_retries=0,
            ),
            max_retry_limit=0,
        )
        task = Task(description=request.question, expected_output="An answer", agent=agent)
        did.answer = Crew(agents=[agent], tasks=[task]).kickoff().raw

    serve(tracing, ask, AGENT_REQUESTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
