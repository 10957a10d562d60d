"""A LangChain application (`python -m tests.apps.app_langchain SERVICE INSTRUMENTATION`)."""

from __future__ import annotations

import sys

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI

from tests.apps.shop import DOCUMENTS, TOP, Did, Request, base_url, embedding, provider, serve

PROMPT = ChatPromptTemplate.from_messages(
    [("system", "Answer from these passages only:\n{context}"), ("human", "{question}")]
)


class Words(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [embedding(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return embedding(text)


class Broken(BaseRetriever):
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        raise ConnectionError("the index is away")


class Empty(BaseRetriever):
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return []


STORE = InMemoryVectorStore(Words())


def ask(request: Request, did: Did) -> None:
    def shown(documents: list[Document]) -> str:
        did.passages = [(str(one.id), one.page_content, None) for one in documents]
        return "\n".join(f"[{n}] {one.page_content}" for n, one in enumerate(documents, 1))

    retriever = {"fails": Broken(), "empty": Empty()}.get(request.search)
    retriever = retriever or STORE.as_retriever(search_kwargs={"k": TOP})
    model = ChatOpenAI(
        model=request.model,
        base_url=base_url(),
        api_key="none",
        timeout=request.timeout,
        max_retries=0,
        stream_usage=True,
    )
    asked = {"context": retriever | shown, "question": RunnablePassthrough()}
    chain = asked | PROMPT | model | StrOutputParser()
    if request.streamed:
        did.answer = "".join(chain.stream(request.question))
    else:
        did.answer = chain.invoke(request.question)


def main(service: str, instrumentation: str) -> None:
    tracing = provider(service)
    if instrumentation == "openllmetry":
        from opentelemetry.instrumentation.langchain import LangchainInstrumentor as Instrumentor
    else:
        from openinference.instrumentation.langchain import LangChainInstrumentor as Instrumentor
    Instrumentor().instrument(tracer_provider=tracing)
    STORE.add_texts(list(DOCUMENTS.values()), ids=list(DOCUMENTS))
    serve(tracing, ask)


if __name__ == "__main__":
    main(*sys.argv[1:])
