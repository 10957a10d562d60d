"""A DSPy program (`python -m tests.apps.app_dspy SERVICE own|litellm`).

`own` is as DSPy's guides have it now: it retrieves by a function of the application, of which no
span says what it found, and DSPy asks the model itself. `litellm` is the older way: by DSPy's class
for retrieval, and LiteLLM asks the model.
"""

from __future__ import annotations

import sys

import dspy
from openinference.instrumentation.dspy import DSPyInstrumentor
from openinference.instrumentation.litellm import LiteLLMInstrumentor

from tests.apps.shop import AGENT_REQUESTS, TOP, Did, Request, base_url, provider, search, serve


def main(service: str, instrumentation: str) -> None:
    tracing = provider(service)
    DSPyInstrumentor().instrument(tracer_provider=tracing)
    LiteLLMInstrumentor().instrument(tracer_provider=tracing)

    def ask(request: Request, did: Did) -> None:
        class Shop(dspy.Module):
            def __init__(self) -> None:
                super().__init__()
                self.retrieve = dspy.Retrieve(k=TOP)
                self.respond = dspy.ChainOfThought("context, question -> answer")

            def forward(self, question: str) -> dspy.Prediction:
                if instrumentation == "litellm":
                    context = self.retrieve(question).passages
                else:
                    context = [text for _, text, _ in search(request, did, question)]
                return self.respond(context=context, question=question)

        def find(query: str, k: int, **_: object) -> list[dspy.Prediction]:
            return [dspy.Prediction(long_text=text) for _, text, _ in search(request, did, query)]

        model = dspy.LM(
            f"openai/{request.model}",
            engine="litellm" if instrumentation == "litellm" else "auto",
            api_base=base_url(),
            api_key="none",
            num_retries=0,
            cache=False,
        )
        with dspy.context(lm=model, rm=find):
            did.answer = Shop()(question=request.question).answer

    serve(tracing, ask, AGENT_REQUESTS)


if __name__ == "__main__":
    main(*sys.argv[1:])
