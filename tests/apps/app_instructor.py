"""Structured answers by Instructor (`python -m tests.apps.app_instructor SERVICE _`)."""

from __future__ import annotations

import sys

import instructor
from openai import OpenAI
from openinference.instrumentation.instructor import InstructorInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry import trace
from opentelemetry.trace import Tracer
from pydantic import BaseModel

from tests.apps.shop import AGENT_REQUESTS, Did, Request, base_url, prompt, provider, search, serve


class Reply(BaseModel):
    """The answer, and the numbers of the passages that it is from."""

    answer: str
    citations: list[int]


def retrieve(tracer: Tracer, request: Request, did: Did) -> list[tuple[str, str, float]]:
    """A retriever as applications write it by OpenInference's conventions."""
    with tracer.start_as_current_span(
        "retrieve",
        attributes={"openinference.span.kind": "RETRIEVER", "input.value": request.question},
    ) as span:
        found = search(request, did, request.question)
        span.set_attribute("output.value", "[]" if not found else "")
        for n, (name, text, _) in enumerate(found):
            span.set_attribute(f"retrieval.documents.{n}.document.id", name)
            span.set_attribute(f"retrieval.documents.{n}.document.content", text)
    return found


def main(service: str, _: str) -> None:
    tracing = provider(service)
    OpenAIInstrumentor().instrument(tracer_provider=tracing)
    InstructorInstrumentor().instrument(tracer_provider=tracing)
    tracer = trace.get_tracer("shop", tracer_provider=tracing)

    def ask(request: Request, did: Did) -> None:
        client = instructor.from_openai(OpenAI(base_url=base_url(), api_key="none", max_retries=0))
        with tracer.start_as_current_span("answer_question"):
            found = retrieve(tracer, request, did)
            reply = client.chat.completions.create(
                model=request.model,
                response_model=Reply,
                max_retries=0,
                messages=[{"role": "user", "content": prompt(request.question, found)}],
            )
        did.answer = reply.answer

    serve(tracing, ask, AGENT_REQUESTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
