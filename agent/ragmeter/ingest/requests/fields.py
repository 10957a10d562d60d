"""Choose query, passages, answer and the other fields of a request among its spans."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from typing import Any

from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.conventions.prompts import cut_prompt
from ragmeter.ingest.conventions.reply_citations import read_reply_citations
from ragmeter.ingest.conventions.reply_facts import (
    finish_reason,
    has_choices,
    holds_reply,
    reply_cost,
    reply_tokens,
    served_model,
)
from ragmeter.ingest.conventions.span_content import (
    RetrievedDocument,
    SpanContent,
    SpanRole,
)
from ragmeter.ingest.conventions.texts import find_answer, find_question
from ragmeter.ingest.conventions.tool_answers import read_tool_answer
from ragmeter.ingest.conventions.values import first_text, parse_nested_json, scalar_text
from ragmeter.ingest.requests.outcome import (
    covered_seconds,
    failed,
    read_outcome,
    seconds_to_first_token,
    sum_usage,
)
from ragmeter.ingest.requests.passages import collect_passages, find_retrievals
from ragmeter.ingest.requests.tree import (
    SpanNode,
    ToolUse,
    answers_question,
    fails_question,
    is_run,
    last_retrieval_moment,
    tool_name,
)
from ragmeter.ingest.spans import replace_surrogates
from ragmeter.reasons import Reason
from ragmeter.trace import CANARY, MAX_ID, MAX_TAGS, Guess, text_id

# Characters stored: a scorer reads no more, and the state file holds every waiting trace. For text
# of Latin letters, the sum of all is below `limits.trace_bytes`.
_MAX_PASSAGE = 131_072
_MAX_PASSAGES_TEXT = 1_048_576
_MAX_CITATIONS = 1_000
_MAX_COST = 1e9  # USD; more is an error of the sender
_MAX_PLAIN_QUESTION = 500  # characters of a line that is no prompt
# Applications and their tracers cut texts at these lengths, often without a mark of it.
_CUT_LENGTHS = frozenset(
    [
        *(2**power for power in range(7, 17)),
        *(first * 10**zeros for first in (1, 2, 3, 4, 5, 8) for zeros in (2, 3, 4)),
        120,
        150,
        250,
        255,
        4_095,
    ]
)
_MAX_LOOKED_AT = 8  # spans that `ragmeter inspect` names for a missing field
_MAX_NAMED_TOOLS = 16  # that `ragmeter inspect` names
_MAX_COMPARED_CALLS = 100  # calls without tokens that are looked for in other spans
# attributes that name the model that answered; others may name the one that was asked for
_SERVED_MODEL = ("gen_ai.response.model", "llm.response.model_name", "ai.response.model")
_THREADS = ("gen_ai.thread.id", "gen_ai.conversation.id")
# tasks of CrewAI's crews, which tell the agent what to do with the question
_TASKS = frozenset(("crewai.task.description", "crew_tasks"))
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# `langfuse_user_id`, `threadId`, `user.email`; a customer or an organization is no single person
_IDENTITY_WORDS = frozenset(
    (
        "session",
        "thread",
        "conversation",
        "chat",
        "dialog",
        "dialogue",
        "user",
        "users",
        "enduser",
        "userid",
        "sessionid",
        "threadid",
        "conversationid",
        "chatid",
        "username",
        "visitor",
        "employee",
        "patient",
        "student",
        "caller",
        "sender",
        "person",
    )
)
_PERSONAL_WORDS = frozenset(("email", "phone", "username", "msisdn"))
_ID_WORDS = frozenset(
    ("id", "ids", "uid", "uuid", "guid", "name", "key", "hash", "address", "identifier", "email")
)
# ids of one request, and what frameworks add to each
_RANDOM_NAME = re.compile(
    r"(?:^|[._-])(?:checkpoint_(?:ns|id|map)|run_?id|request_?id|trace_?id|span_?id|correlation_?id"
    r"|message_?id|execution_?id|invocation_?id|event_?id|generation_?id|completion_?id|response_?id"
    r"|nonce|timestamp|created_at|started_at|x-request-id)$"
    r"|^(?:ls|lc|langgraph|checkpoint|__pregel)_",
    re.IGNORECASE,
)
_RANDOM_VALUE = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}|[0-9a-f]{16}", re.IGNORECASE
)
_GROUP_NAME = re.compile(
    r"tenant|customer|org|account|project|workspace|team|client|app|index|collection|dataset"
    r"|prompt|model|version|release|deploy|commit|sha|build",
    re.IGNORECASE,
)
# what a step replies that grades an answer
_VERDICT = re.compile(
    r"(?:the answer is )?(?:not )?(?:yes|no|true|false|pass(?:ed)?|fail(?:ed)?|useful|grounded"
    r"|supported|relevant|irrelevant|safe|unsafe|ok|approved|rejected|correct|incorrect|good|bad"
    r"|\d{1,3}(?:\.\d+)?(?: ?/ ?\d{1,3})?)[.!]?"
    r"|(?:```(?:json)?\s*)?\{[^{}]{0,80}\"(?:\w*score|grade|verdict|rating|passed|useful|is_\w+|valid"
    r"|ok|grounded|relevant)\"[^{}]{0,2000}\}(?:\s*```)?",
    re.IGNORECASE,
)
# names of steps that check, grade or guard an answer: `check.task`, `grade_answer`
_CHECKS = re.compile(
    r"(?:^|[\W_])(?:check(?:er|s)?|evaluat\w*|eval|grad(?:e|er|ing)|judge\w*|critic|critique|verif\w*"
    r"|validat\w*|guard(?:rail)?s?|moderat\w*|scor(?:e|er|ing)|fact_?check\w*|hallucination\w*"
    r"|self_?reflect\w*|faithful\w*|grounded(?:ness)?|relevanc[ey]|toxicity|correctness)(?:$|[\W_])",
    re.IGNORECASE,
)
# what a call is told to write once the answer is there: a title, further questions, memories
_AFTERWARDS = re.compile(
    r"\b(?:write|generate|create|provide|suggest|give|come up with|propose|produce|make|predict)\b"
    r"[^.\n]{0,80}\b(?:title|headline|follow[- ]?ups?|tags|questions)\b"
    r"|\btitle (?:for|of) (?:this|the|our) (?:chat|conversation|thread|dialog)"
    r"|\b(?:extract|save|store|identify|list)\b[^.\n]{0,60}\b(?:facts|memor(?:y|ies)|entities|keywords"
    r"|topics|preferences)\b"
    r"|\b(?:summari[sz]e|compress|condense)\b[^.\n]{0,60}\b(?:conversation|chat|dialog(?:ue)?|history)\b"
    r"|\b(?:classify|categori[sz]e)\b[^.\n]{0,60}\b(?:conversation|chat|dialog|topic|intent|sentiment)\b",
    re.IGNORECASE,
)
# what a call is told that grades an answer, and a reply that gives its reasons and the grade
_GRADES = re.compile(r"\b(?:rate|grade|score|evaluate|assess|judge|verify|check)\b", re.IGNORECASE)
_GRADED = re.compile(
    r"\b(?:scores?|rating|grade|verdict|decision|faithful(?:ness)?|grounded(?:ness)?|relevan\w+|correct)\b"
    r"[*_\"'`]{0,3} ?[:=] ?[*_\"'`]{0,3}(?:\d|yes\b|no\b|pass|fail|true\b|false\b)",
    re.IGNORECASE,
)
_TITLES = re.compile(
    r"\b(?:write|generate|create|provide|suggest|give|come up with|produce|make|summari[sz]e)\b"
    r"[^.\n]{0,80}\b(?:title|headline|subject line)\b",
    re.IGNORECASE,
)
_MAX_TITLE_WORDS = 16
_MAX_INSTRUCTIONS = 50_000  # characters of a call's input that are searched for such words
_MIN_QUESTION = 8  # characters of a question that is looked for in the prompt of another call
_MIN_ANSWER_WORDS = 3  # of an answer that is looked for in the input of a later call
_RESOURCE_TAGS = {
    "environment": ("deployment.environment.name", "deployment.environment"),
    "service_version": ("service.version",),
}


@dataclass(frozen=True, slots=True)
class _TextField:
    """Query or answer: `trace_key` holds it for the whole trace, on any span of Langfuse."""

    name: str
    limit: int
    truncated: Reason
    trace_key: str
    find: Callable[[Any], tuple[str | None, Reason | None]]


_QUERY = _TextField(
    name="query",
    limit=32_768,
    truncated=Reason.QUERY_TRUNCATED,
    trace_key="langfuse.trace.input",
    find=find_question,
)
_ANSWER = _TextField(
    name="answer",
    limit=131_072,
    truncated=Reason.ANSWER_TRUNCATED,
    trace_key="langfuse.trace.output",
    find=find_answer,
)


@dataclass(frozen=True, slots=True)
class SeenTool:
    """A tool of a request, the node that shows it, and whether its result gives passages."""

    name: str
    node: SpanNode
    taken: bool


@dataclass(frozen=True, slots=True)
class ComposedRequest:
    """The fields of a request.

    Attributes:
        values: Fields of a `Trace`, without id, service, time, sampling and span.
        end: End of the request in Unix nanoseconds.
        is_request: False without any model call, anything retrieved and any run of an agent.
        origins: The nodes that hold the fields, by field.
        looked_at: For each of these that is missing, the nodes that could have told it.
        tools: Every tool that was seen, with whether its result was taken for passages.
    """

    values: dict[str, Any]
    end: int
    is_request: bool
    origins: dict[str, list[SpanNode]]
    looked_at: dict[str, list[SpanNode]] = field(default_factory=dict)
    tools: list[SeenTool] = field(default_factory=list)


def compose_request(
    node: SpanNode, server: SpanNode | None, settings: OtlpSettings
) -> ComposedRequest:
    """Compose the fields of the request at a node of an annotated tree.

    `server` is the server or queue span that served this request alone.
    """
    own = node.content()
    request = _RequestFields(node, server, settings)
    passages, passages_gap = request.passages()  # first: a question is no text that holds them
    query = request.query()
    status, error = read_outcome(request.nodes, server, bool(own.answer))
    answer = request.answer()
    if status == "ok" and not answer.text and answer.gap is None:
        status, error = read_outcome(request.nodes, server, answered=False)
    if error and answer.text is not None and (answer.text.strip() or error) in error:
        answer = _FieldChoice()  # the failure, which the span gives back in the answer's place
    model, model_guess, model_node = request.model(answer)
    usage, usage_guess = request.usage()
    ended, ended_node = request.finish_reason(answer)
    guessed = {
        "query": query.guess,
        "passages": request.passages_guess(),
        "answer": answer.guess or request.choice_guess(answer),
        "tokens": usage_guess,
        "model": model_guess,
    }
    missing: dict[str, str] = {}
    if query.text is None or query.gap is not None:
        missing["query"] = query.gap or Reason.NO_QUERY_CAPTURED
    if passages_gap is not None:
        missing["passages"] = passages_gap
    if answer.gap is not None or (answer.text is None and status == "ok"):
        missing["answer"] = answer.gap or Reason.NO_ANSWER_CAPTURED
    values: dict[str, Any] = {
        "query": query.text,
        "answer": answer.text,
        "passages": passages,
        "status": status,
        "error": replace_surrogates(error) if error else None,
        "timings": request.timings(),
        "model": model,
        "finish_reason": ended,
        "usage": usage,
        "prompt_version": _first_text(request.nodes, "prompt_version"),
        "tags": _tags(request, query, settings),
        "citations": _citations(answer, own) or request.reply_citations(answer),
        "missing": missing,
        "guessed": {name: guess for name, guess in guessed.items() if guess} or None,
    }
    return ComposedRequest(
        values,
        end=node.end or max((below.end for below in request.nodes), default=0),
        is_request=any(not call.content().calls_tools for call in request.calls)
        or (bool(answer.text) and answer.node in request.calls)
        or any(is_run(below) for below in request.nodes)
        or answers_question(node)
        or fails_question(node)
        or passages is not None
        or any(retrieval.role is SpanRole.RETRIEVER for retrieval in request.retrievals),
        origins={
            "query": [query.node] if query.node and query.text is not None else [],
            "answer": [answer.node] if answer.node and answer.text is not None else [],
            "passages": request.retrieved.spans,
            "model": [model_node] if model_node else [],
            "finish_reason": [ended_node] if ended_node else [],
            "status": [one for one in (server, node) if one is not None and failed(one)] or [node],
            "timings": [server or node],
            "citations": [answer.node] if answer.node and values["citations"] else [],
            "tags": [one for one in request.above_and_below() if one.preview.tags][:_MAX_LOOKED_AT],
            "tokens": [call for call in request.calls if call.preview.input_tokens is not None],
            "session": [one for one in request.above_and_below() if _names_session(one)][:1],
        },
        looked_at=request.looked_at(values),
        tools=request.tools()[:_MAX_NAMED_TOOLS],
    )


def is_identity(name: str) -> bool:
    """Return whether a tag or metadata of this name holds a session or a user."""
    words = [word.lower() for word in _NAME_WORD.findall(name)]
    if words and words[-1] in _PERSONAL_WORDS:  # `customer_email`: that of a person, whoever it is
        return True
    while len(words) > 1 and words[-1] in _ID_WORDS:
        words.pop()
    return bool(words) and words[-1] in _IDENTITY_WORDS


def is_random(name: str, value: str) -> bool:
    """Return whether a tag is another one in every request, and so says nothing of any group."""
    if _RANDOM_NAME.search(name):
        return True
    return _RANDOM_VALUE.fullmatch(value) is not None and not _GROUP_NAME.search(name)


def hash_identity(value: str, settings: OtlpSettings) -> str:
    """Return a session or user as it is stored: a keyed 64-bit hash, equal on every worker."""
    if not settings.hash_ids:
        return value
    key = hashlib.blake2b(settings.session_salt.get_secret_value().encode()).digest()
    return hashlib.blake2b(value.encode(), digest_size=8, key=key).hexdigest()


@dataclass(frozen=True, slots=True)
class _FieldChoice:
    """A text, why it is missing or incomplete, the node that holds it, and why it may be wrong."""

    text: str | None = None
    gap: Reason | None = None
    node: SpanNode | None = None
    guess: Guess | None = None


class _RequestFields:
    """One request while its fields are chosen."""

    def __init__(self, node: SpanNode, server: SpanNode | None, settings: OtlpSettings) -> None:
        self.node = node
        self._server = server
        self._settings = settings
        self._text_limit = settings.text_limit
        self._followers: dict[int, bool] = {}  # by the identity of a call
        self.nodes = list(node.walk())
        self.retrievals = find_retrievals(node)
        self.retrieved = collect_passages(node, settings)
        # model calls that no retrieval makes for itself, by their end
        inside = {
            id(below)
            for retrieval in self.retrievals
            for below in retrieval.walk()
            if below is not retrieval
        }
        self.calls = sorted(
            (one for one in self.nodes if one.role is SpanRole.LLM and id(one) not in inside),
            key=lambda call: (call.end, -call.start, call.span.span_id),
        )

    def query(self) -> _FieldChoice:
        """Choose the question of the application, else of a retrieval, else of a model call.

        The model words the query of a tool, so that comes last. A prompt is cut to its question.
        """
        texts = [document.text or "" for document in self.retrieved.documents or ()]
        missing = _FieldChoice()
        for choice, guess in self._questions():
            if choice.text is not None:
                node = choice.node
                is_prompt = node is not None and (
                    node.role is SpanRole.LLM
                    or is_run(node)
                    or node.preview.convention == "vercel_ai"  # around a call, with its prompt
                    or not _TASKS.isdisjoint(node.span.attributes)
                )
                question = cut_prompt(choice.text, texts, is_prompt)
                if (
                    question == choice.text
                    and guess is Guess.USER_MESSAGE
                    and self._may_hold_context(question)
                ):
                    question = None
                if question == choice.text:
                    return replace(choice, guess=guess) if guess else choice
                if question is not None:
                    return replace(choice, text=question, guess=Guess.CUT_FROM_PROMPT)
                choice = _FieldChoice(None, Reason.PROMPT_ONLY, node)
            if missing.gap is None and choice.gap is not None:
                missing = choice
        return missing

    def _may_hold_context(self, message: str) -> bool:
        """Return whether a message may be the prompt to which retrieved texts went, all unknown."""
        return (
            self.retrieved.documents is None
            and any(one.role is not SpanRole.TOOL for one in self.retrievals)
            and ("\n" in message.strip() or len(message) > _MAX_PLAIN_QUESTION)
        )

    def _questions(self) -> Iterator[tuple[_FieldChoice, Guess | None]]:
        """Yield what may be the question, best first, and what doubt there is."""
        if self.node.content().query is None:
            yield self._of_trace(_QUERY) or _FieldChoice(), None
        yield self._first([self.node], _QUERY), None
        for retrieval in self.retrievals:
            if retrieval.role is not SpanRole.TOOL:
                yield self._first([retrieval], _QUERY), Guess.RETRIEVAL_QUERY
        # what only grades an answer, or goes on from it, is not told the question as it was put
        for call in (*reversed(self._answering(self.calls)), *reversed(self.calls)):
            yield self._first([call], _QUERY), Guess.USER_MESSAGE if self.retrievals else None
        for retrieval in self.retrievals:
            if retrieval.role is SpanRole.TOOL:
                yield self._first([retrieval], _QUERY), Guess.TOOL_ARGUMENTS
        yield self._first(self._put_before(), _QUERY), None

    def _put_before(self) -> list[SpanNode]:
        """Return the spans, the last first, that put messages into the thread of this run before.

        Azure's agents have a span of their own for that.
        """
        thread = first_text(self.node.span.attributes, _THREADS)
        above = next(self.node.ancestors(), self.node.parent)
        beside = above.children if above is not None and thread is not None else []
        return [
            one
            for one in reversed(beside[-_MAX_COMPARED_CALLS:])
            if one.end <= self.node.start
            and one.role is SpanRole.OTHER
            and first_text(one.span.attributes, _THREADS) == thread
        ]

    def answer(self) -> _FieldChoice:
        """Choose the answer of the application, else the reply of its last model call."""
        own = self.node.content()
        if not own.answer or (self.node.role is SpanRole.RETRIEVER and self.calls):
            of_trace = self._of_trace(_ANSWER) if not own.answer else None
            choice = of_trace or self._reply()
            if choice.text is None and own.answer_gap is not None:
                return _FieldChoice(None, own.answer_gap, self.node)
            if own.answer is None and not holds_reply(self.node.span):
                return choice
            if not choice.text and own.answer is not None:  # the application gave back nothing
                return _FieldChoice("", None, self.node)
            if self.node in self.calls or not choice.text:
                return choice
            # some write an empty output where they record none, or one that is not understood
            return replace(choice, guess=choice.guess or Guess.LAST_CALL)
        if own.answer_gap is Reason.ANSWER_TRUNCATED or len(own.answer) in _CUT_LENGTHS:
            reply = self._reply()
            whole = reply.text if reply.gap is None else None
            begun = own.answer.rstrip(".…")
            if whole is not None and len(whole) > len(begun) and whole.startswith(begun):
                return reply
        return self._first([self.node], _ANSWER)

    def _of_trace(self, field: _TextField) -> _FieldChoice | None:
        for node in (*self.node.ancestors(), *self.nodes):
            raw = node.span.attributes.get(field.trace_key)
            text, gap = field.find(raw) if raw is not None else (None, None)
            if text:
                return self._choice(text, gap, node, field)
        return None

    def _first(self, nodes: Iterable[SpanNode], field: _TextField) -> _FieldChoice:
        """Choose the first text, else the first reason why one is missing."""
        missing = _FieldChoice()
        for node in nodes:
            content = node.content()
            text = getattr(content, field.name)
            gap = getattr(content, f"{field.name}_gap")
            if text:
                return self._choice(text, gap, node, field)
            if text == "" and missing.text is None:
                missing = _FieldChoice("", None, node)
            if gap is not None and missing == _FieldChoice():
                missing = _FieldChoice(None, gap, node)
        return missing

    def _choice(
        self, text: str, gap: Reason | None, node: SpanNode, field: _TextField
    ) -> _FieldChoice:
        if gap is None and (len(text) > field.limit or len(text) == self._text_limit):
            gap = field.truncated
        return _FieldChoice(replace_surrogates(text[: field.limit]), gap, node)

    def _reply(self) -> _FieldChoice:
        """Choose the reply of the last call that can be the answer.

        Left out are calls that ended before the retrieval began (they rewrite the question), calls
        that only ask for tools, and, if others remain, calls inside of tools.
        """
        first = min((one.start for one in self.retrievals), default=0)
        seeing = [call for call in self.calls if last_retrieval_moment(call) >= first]
        calls = [call for call in seeing if not call.content().calls_tools]
        in_tools = self._in_tools()
        calls = [call for call in calls if id(call) not in in_tools] or calls
        calls = self._answering(calls)
        structured = self._structured_answer(seeing, in_tools)
        if structured is not None or not calls:
            choice = self._chain_answer()
            return choice if choice.text or structured is None else structured
        copies = _last_copies(calls)
        choice = self._first(copies, _ANSWER)
        return replace(choice, guess=Guess.LAST_CALL) if len(copies) < len(calls) else choice

    def _structured_answer(self, calls: list[SpanNode], in_tools: set[int]) -> _FieldChoice | None:
        """Return the answer in a tool call of the last model call, after which no tool has run."""
        calls = self._answering([call for call in calls if id(call) not in in_tools] or calls)
        copies = _last_copies(calls)
        if not copies or any(call.content().answer for call in copies):
            return None
        end = max(call.end for call in copies)
        if any(node.role is SpanRole.TOOL and node.end > end for node in self.nodes[1:]):
            return None
        for call in copies:
            arguments = read_tool_answer(call.span)
            if arguments is not None:
                text, gap = find_answer(arguments)
                return self._choice(text or arguments, gap, call, _ANSWER)
        return None

    def _answering(self, calls: list[SpanNode]) -> list[SpanNode]:
        """Leave out calls in steps that check an answer, unless there are no others."""

        def checks(call: SpanNode) -> bool:
            above = takewhile(lambda node: node is not self.node, call.ancestors())
            named = any(_CHECKS.search(node.span.name) for node in (call, *above))
            return named or _gives_verdict(call, calls) or self._follows_answer(call)

        return [call for call in calls if not checks(call)] or calls

    def _follows_answer(self, call: SpanNode) -> bool:
        """Return whether a call was given an earlier answer to write a title or the like of it."""
        if id(call) not in self._followers:
            self._followers[id(call)] = _follows_answer(call, self.calls)
        return self._followers[id(call)]

    def _in_tools(self) -> set[int]:
        inside: set[int] = set()
        for node in self.nodes[1:]:  # parents first
            parent = node.parent
            if parent is not None and (
                id(parent) in inside or (parent.role is SpanRole.TOOL and parent is not self.node)
            ):
                inside.add(id(node))
        return inside

    def _chain_answer(self) -> _FieldChoice:
        """Choose the output of the last step, without any model call that answers in words.

        That is the step around the last call, whose reply it has parsed, or, below a span that is
        no step itself, one that ended after the retrieval.
        """
        steps: list[SpanNode] = []
        if self.calls:
            above = takewhile(lambda node: node is not self.node, self.calls[-1].ancestors())
            steps = [step for step in above if step.role is SpanRole.CHAIN]
        elif self.node.role is SpanRole.OTHER:
            last = max((one.end for one in self.retrievals), default=0)
            steps = [
                child
                for child in self.node.children
                if child.role is SpanRole.CHAIN and not child.retrievals and child.end >= last
            ]
            steps.sort(key=lambda step: (step.end, step.start, step.span.span_id), reverse=True)
        choice = self._first((s for s in steps if s.content().answer), _ANSWER)
        return replace(choice, guess=Guess.STEP_OUTPUT) if choice.text is not None else choice

    def passages(self) -> tuple[list[dict[str, Any]] | None, Reason | None]:
        documents = self.retrieved.documents
        gap = self.retrieved.gap
        if documents is None:
            return None, gap or Reason.NO_PASSAGES_CAPTURED
        passages: list[dict[str, Any]] = []
        ids: set[str] = set()
        left = _MAX_PASSAGES_TEXT
        for rank, document in enumerate(documents, 1):
            text = document.text
            if text is not None:
                if len(text) > min(_MAX_PASSAGE, left) or len(text) == self._text_limit:
                    gap = gap or Reason.PASSAGES_TRUNCATED
                text = replace_surrogates(text[: min(_MAX_PASSAGE, left)])
                left -= len(text)
            passage = _passage(document, text, rank, self._settings)
            if passage["id"] in ids:  # chunks of one source
                passage["id"] = f"{passage['id'][: MAX_ID - 8]}#{rank}"
            ids.add(passage["id"])
            passages.append(passage)
        return passages, gap

    def timings(self) -> dict[str, float]:
        """Return seconds by stage, without stages that no span shows."""
        top = self._server or self.node
        total = covered_seconds([top] if top.span.end > 0 else self.nodes)
        start = top.start or min((node.start for node in self.nodes if node.start), default=0)
        inside = {id(below) for retrieval in self.retrievals for below in retrieval.walk()}
        stages = {
            "total": total,
            "retrieval": covered_seconds(self.retrievals),
            "rerank": covered_seconds(
                node
                for node in self.nodes
                if node.role is SpanRole.RERANKER and id(node) not in inside
            ),
            "generation": covered_seconds(self.calls),
            "first_token": seconds_to_first_token(start, self.calls),
        }
        return {name: seconds for name, seconds in stages.items() if seconds is not None}

    def tools(self) -> list[SeenTool]:
        """Return every tool that was seen, in spans or in the messages of calls."""
        taken = {id(node) for node in self.retrieved.spans}
        seen: dict[str, SeenTool] = {}
        for node in self.nodes:
            if node.role is SpanRole.TOOL:
                name = tool_name(node.span)
                if name not in seen or id(node) in taken:
                    seen[name] = SeenTool(name, node, id(node) in taken)
        for name, is_taken in self.retrieved.tools.items():
            if name not in seen or is_taken:
                seen[name] = SeenTool(name, self.retrieved.tool_calls[name], is_taken)
        return list(seen.values())

    def choice_guess(self, answer: _FieldChoice) -> Guess | None:
        """Return the doubt about the first of several replies: the user may have seen another."""
        if answer.node is None or not answer.text:
            return None
        return Guess.FIRST_CHOICE if has_choices(answer.node.span) else None

    def reply_citations(self, answer: _FieldChoice) -> list[dict[str, Any]] | None:
        """Return the citations that a provider has put beside the text of the answer."""
        if answer.node is None or not answer.text:
            return None
        nodes = [answer.node]
        nodes += (one for one in _last_copies(self._answering(self.calls)) if one is not nodes[0])
        for node in nodes:
            found = read_reply_citations(node.span, answer.text)
            if found:
                return found[:_MAX_CITATIONS]
        documents = answer.node.content().documents
        if answer.node.role is SpanRole.RETRIEVER and documents:
            # one span retrieves and generates: of Bedrock, it lists what the reply cites
            names = [{"id": one.id, "text": one.text} for one in documents if one.id or one.text]
            return [{"sources": names}] if names else None
        return None

    def finish_reason(self, answer: _FieldChoice) -> tuple[str | None, SpanNode | None]:
        """Return why the model ended the answer, and the node that tells."""
        nodes = [answer.node] if answer.node else []
        if not nodes or nodes[0].role is not SpanRole.LLM:
            nodes = [*_last_copies(self._answering(self.calls)), *nodes]
        for node in nodes:
            if reason := finish_reason(node.span):
                return replace_surrogates(reason), node
        return None, None

    def passages_guess(self) -> Guess | None:
        """Return the doubt about the passages: nobody has said what a tool or a text is."""
        if self.retrieved.prompted:
            return Guess.PROMPT_TEXT
        likely = self.retrieved.guessed or any(
            node.tool_use is ToolUse.LIKELY for node in self.retrieved.spans
        )
        return Guess.TOOL_RESULT if likely else None

    def above_and_below(self) -> list[SpanNode]:
        """Return the nodes that may tell session, user and tags: those above come first."""
        return [self.node, *self.node.ancestors(), *self.nodes[1:]]

    def looked_at(self, values: Mapping[str, Any]) -> dict[str, list[SpanNode]]:
        """Return the nodes that could have told the fields that are missing."""
        calls = self.calls[-_MAX_LOOKED_AT:]
        tools = [node for node in self.nodes if node.role is SpanRole.TOOL]
        could_tell = {
            "query": [self.node, *self.retrievals, *calls],
            "passages": [*self.retrievals, *tools, *calls] or [self.node],
            "answer": [self.node, *calls],
            "tokens": calls or [self.node],
            "model": calls or [self.node],
            "finish_reason": calls or [self.node],
            "session": [self.node, *self.node.ancestors()],
        }
        usage = values["usage"]
        known = {
            "query": values["query"],
            "passages": values["passages"],
            "answer": values["answer"],
            "tokens": usage["input_tokens"] if usage else None,
            "model": values["model"],
            "finish_reason": values["finish_reason"],
            "session": values["tags"].get("session"),
        }
        return {
            name: nodes[:_MAX_LOOKED_AT]
            for name, nodes in could_tell.items()
            if known[name] is None
        }

    def model(self, answer: _FieldChoice) -> tuple[str | None, Guess | None, SpanNode | None]:
        """Return the model of the call that answered, and its node.

        The one asked for may not be it.
        """
        answering = [answer.node] if answer.node and answer.node.role is SpanRole.LLM else []
        answering += _last_copies(self._answering(self.calls))
        for call in answering:
            model = first_text(call.span.attributes, _SERVED_MODEL) or served_model(call.span)
            if model is not None:
                return replace_surrogates(model), None, call
        for node in (*answering, *reversed(self.calls), *self.nodes):
            model = node.preview.model
            if model:
                guess = Guess.REQUESTED_MODEL if _may_be_requested(model, node) else None
                return replace_surrogates(model), guess, node
        return None, None, None

    def usage(self) -> tuple[dict[str, Any] | None, Guess | None]:
        """Return tokens and cost; a call that tells none makes the sum too small."""
        for call in self.calls[:_MAX_COMPARED_CALLS]:
            if call.preview.input_tokens is None and call.preview.output_tokens is None:
                counts = reply_tokens(call.span)
                call.preview.input_tokens = counts.input
                call.preview.output_tokens = counts.output
                call.preview.cached_input_tokens = counts.cached
            if call.preview.cost_usd is None:
                call.preview.cost_usd = reply_cost(call.span)
        summed = sum_usage(self.nodes)
        usage = asdict(summed)
        if all(value is None for value in usage.values()):
            return None, None
        if summed.cost_usd is not None and not 0 <= summed.cost_usd <= _MAX_COST:
            usage["cost_usd"] = None
        counted = [call for call in self.calls if call.preview.input_tokens is not None]
        silent = [
            call
            for call in self.calls[:_MAX_COMPARED_CALLS]
            if call.preview.input_tokens is None and call.span.status != 2
        ]
        partial = counted and any(
            not any(_overlap(call, other) for other in counted[:_MAX_COMPARED_CALLS])
            for call in silent
        )
        return usage, Guess.PARTIAL_USAGE if partial else None


def _may_be_requested(model: str, node: SpanNode) -> bool:
    """Return whether a model that a span names may be the one asked for, not the one that answered.

    OpenInference has one key for both: it is that of the reply where it differs from the request's.
    """
    attributes = node.span.attributes
    if "llm.model_name" in attributes:
        asked = parse_nested_json(attributes.get("llm.invocation_parameters"))
        given = asked.get("model") or asked.get("model_name") if isinstance(asked, dict) else None
        return given is None or given == model
    return model == attributes.get("gen_ai.request.model")


def _overlap(first: SpanNode, second: SpanNode) -> bool:
    return first.start < second.end and second.start < first.end


def _gives_verdict(call: SpanNode, calls: Sequence[SpanNode]) -> bool:
    """Return whether a call was given the answer of an earlier one and replied by a verdict."""
    verdict = call.content().answer
    if not verdict or not _VERDICT.fullmatch(verdict.strip()):
        return False
    for earlier in calls:
        answer = (earlier.content().answer or "").strip()
        worded = len(answer) > len(verdict) or (verdict[-1] in "}`" and len(answer.split()) > 1)
        may_be = earlier.end <= call.start and worded and not answer.endswith("?")
        if may_be and _was_given(call, answer):
            return True
    return False


def _follows_answer(call: SpanNode, calls: Sequence[SpanNode]) -> bool:
    """Return whether a call was given an answer of earlier ones, and writes something about it.

    A title may be written of the question alone, beside the answer.
    """
    query = call.content().query
    if query and _TITLES.search(query[:_MAX_INSTRUCTIONS]) is not None:
        others = calls[-_MAX_COMPARED_CALLS:]
        if any(_is_title_beside(call, other) for other in others):
            return True
    for earlier in calls[-_MAX_COMPARED_CALLS:]:
        answer = (earlier.content().answer or "").strip() if earlier.end <= call.start else ""
        # in a loop over a model the user's message stays the same
        if (
            len(answer.split(None, _MIN_ANSWER_WORDS - 1)) >= _MIN_ANSWER_WORDS
            and query != earlier.content().query
            and _was_given(call, answer)
        ):
            texts = (text[:_MAX_INSTRUCTIONS] for text in (*_texts(call), query or ""))
            told = [text for text in texts if text]
            graded = _GRADED.search(call.content().answer or "") is not None
            return any(
                _AFTERWARDS.search(text) or (graded and _GRADES.search(text)) for text in told
            )
    return False


def _is_title_beside(call: SpanNode, other: SpanNode) -> bool:
    """Return whether a call was told to write a title about the question of another one."""
    prompt = (call.content().query or "").strip()
    question = (other.content().query or "").strip()
    if len(question) < _MIN_QUESTION or len(question) >= len(prompt) or not other.content().answer:
        return False
    if len((call.content().answer or "").split(None, _MAX_TITLE_WORDS)) > _MAX_TITLE_WORDS:
        return False
    before, found, after = prompt[:_MAX_INSTRUCTIONS].partition(question)
    return bool(found) and _TITLES.search(f"{before}\n{after}") is not None


def _texts(call: SpanNode) -> list[str]:
    """Return all texts of a call's attributes and events."""
    holders = [call.span.attributes, *(event.attributes for event in call.span.events)]
    return [value for holder in holders for value in holder.values() if isinstance(value, str)]


def _was_given(call: SpanNode, answer: str) -> bool:
    """Return whether a call holds an earlier answer, which may stand within JSON."""
    forms = {answer, json.dumps(answer)[1:-1], json.dumps(answer, ensure_ascii=False)[1:-1]}
    return any(form in text for text in _texts(call) for form in forms)


def _last_copies(calls: Sequence[SpanNode]) -> list[SpanNode]:
    """Return the spans that show the last of the calls, the last first.

    If several instrumentors show it, only one may hold its text or its model.
    """
    copies = takewhile(lambda call: call is calls[-1] or _overlap(call, calls[-1]), reversed(calls))
    return list(copies) if calls else []


def _passage(
    document: RetrievedDocument, text: str | None, rank: int, settings: OtlpSettings
) -> dict[str, Any]:
    """Return a passage; without an id it gets a hash of its text, equal in every trace."""
    identity = replace_surrogates(document.id)[:MAX_ID]
    if not identity and text:
        identity = text_id(text)
    metadata = {}
    for key, value in document.metadata.items():
        if isinstance(value, str):
            value = replace_surrogates(value)
        if is_identity(key) and isinstance(value, str | int):
            value = hash_identity(str(value), settings)
        metadata[replace_surrogates(key)] = value
    if document.score is not None and document.score_kind == "distance":
        metadata["score_kind"] = "distance"  # lower is better
    return {
        "id": identity or f"#{rank}",
        "text": text,
        "rank": rank,
        "score": document.score,
        "metadata": metadata or None,
    }


def _tags(request: _RequestFields, query: _FieldChoice, settings: OtlpSettings) -> dict[str, str]:
    sources = request.above_and_below()
    tags: dict[str, str] = {}
    session = _first_text(sources, "session") or _attribute(sources, "session.id")
    user = _first_text(sources, "user") or _attribute(sources, "user.id", "enduser.id")
    if session:
        tags["session"] = hash_identity(session, settings)
    if user:
        tags["user"] = hash_identity(user, settings)
    if (_attribute(sources, CANARY) or "").lower() == "true":
        tags[CANARY] = "true"  # the service has passed on the mark of `ragmeter canary run`
    searched = request.retrievals[0].content().query if request.retrievals else None
    if searched is not None and query.text is not None and searched != query.text:
        # the application has rewritten the question
        tags["retrieval_query"] = replace_surrogates(searched)
    for node in sources:
        for name, value in node.preview.tags.items():
            if len(tags) >= MAX_TAGS - len(_RESOURCE_TAGS):
                break
            value = replace_surrogates(value)
            if is_identity(name):
                value = hash_identity(value, settings)
            elif is_random(name, value):
                continue
            tags.setdefault(replace_surrogates(name), value)
    resources = [node.span.resource for node in request.nodes]
    for name, keys in _RESOURCE_TAGS.items():
        values = _scalar_texts(resources, keys)
        if name not in tags and (text := next(values, None)):
            tags[name] = replace_surrogates(text)
    return tags


def _names_session(node: SpanNode) -> bool:
    return bool(node.preview.session or scalar_text(node.span.attributes.get("session.id")))


def _first_text(nodes: Iterable[SpanNode], name: str) -> str | None:
    values = (getattr(node.preview, name) for node in nodes)
    text = next((value for value in values if isinstance(value, str) and value.strip()), None)
    return None if text is None else replace_surrogates(text)


def _attribute(nodes: Iterable[SpanNode], *keys: str) -> str | None:
    """Return an attribute that spans without a convention may have, above all server spans."""
    attributes = (node.span.attributes for node in nodes)
    text = next(_scalar_texts(attributes, keys), None)
    return None if text is None else replace_surrogates(text)


def _scalar_texts(maps: Iterable[dict[str, Any]], keys: Iterable[str]) -> Iterator[str]:
    texts = (scalar_text(attributes.get(key)) for attributes in maps for key in keys)
    return (text for text in texts if text)


def _citations(answer: _FieldChoice, own: SpanContent) -> list[dict[str, Any]] | None:
    given = own.citations or (answer.node.content().citations if answer.node else [])
    citations = []
    for start, end, passages in given[:_MAX_CITATIONS]:
        if any(position is not None and position < 0 for position in (start, end)):
            continue
        ids = [replace_surrogates(passage)[:MAX_ID] for passage in passages]
        citations.append({"start": start, "end": end, "passage_ids": ids})
    return citations or None
