"""Show which traces recorded OTLP requests yield, and from which spans (`ragmeter inspect`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ragmeter.config.inputs import OtlpSettings
from ragmeter.console.streams import escape_control
from ragmeter.core.score import NoScore
from ragmeter.ingest.files import open_input
from ragmeter.ingest.live_inspection import describe_request, grade_fields
from ragmeter.ingest.otlp import decode_logs, decode_traces
from ragmeter.ingest.otlp.json_format import is_json_body
from ragmeter.ingest.otlp.reader import DecodedRequest, UndecodableBody
from ragmeter.ingest.otlp.signals import OtherSignal, find_other_signal
from ragmeter.ingest.requests.extraction import FieldOrigin, NotRequest, extract_requests
from ragmeter.ingest.spans import LogEvent, Span
from ragmeter.metrics.costs import PriceTable, estimate_cost, list_prices
from ragmeter.reasons import Reason
from ragmeter.trace import Guess, Trace

MAX_BODY = 512 * 2**20  # bytes, as for files of traces
_MAX_UNREAD = 20  # bodies whose mistake is printed
# what a file has that holds no spans, and the cure
_RECORD_TRACES = (
    "record the export of traces, as by a pipeline `traces` of the Collector to its file exporter,"
    " or look on with `ragmeter inspect --live`"
)
_OTHER_SIGNALS: dict[OtherSignal, str] = {
    "metrics": f"holds metrics, which tell nothing of single requests: {_RECORD_TRACES}",
    "logs": f"holds logs without their spans, which say where each belongs: {_RECORD_TRACES}",
}
_MAX_NOT_REQUESTS = 20  # that are printed; JSON has all
_MAX_SHOWN_CHARS = 300  # of a text on the terminal; JSON has the whole text

FieldOrigins = Mapping[str, Sequence[FieldOrigin]]


@dataclass(slots=True)
class Inspection:
    """What was read from recorded requests.

    Args:
        traces: Traces with the spans that gave their fields.
        not_requests: For each OTLP trace that is no request the span that comes nearest to one.
        rejected: Number of spans that cannot be decoded, by reason.
        unread: What is wrong with bodies of which nothing can be read, and the cure.
    """

    traces: list[tuple[Trace, FieldOrigins]] = field(default_factory=list)
    not_requests: list[NotRequest] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)
    unread: list[str] = field(default_factory=list)
    spans: int = 0
    bodies: int = 0

    @property
    def dropped(self) -> Counter[str]:
        """The number of OTLP traces that are not requests, by reason."""
        return Counter(one.reason for one in self.not_requests)


def inspect_files(paths: Iterable[Path], settings: OtlpSettings) -> Inspection:
    """Read files of OTLP export requests, traces and logs mixed, and join their spans.

    A file has a protobuf body, a JSON body, or one JSON body a line, gzip too; `-` is stdin. Of a
    folder its files are read, by name.

    Raises:
        OSError: A file cannot be read.
    """
    inspection = Inspection()
    spans: dict[tuple[str, str], Span] = {}
    logs: list[LogEvent] = []
    others: dict[tuple[str, OtherSignal], None] = {}
    for path in _files(paths):
        for body in _bodies(path):
            inspection.bodies += 1
            try:
                decoded = _decode(body)
                other = None if decoded.spans else find_other_signal(body, json=_is_json(body))
            except UndecodableBody as error:
                inspection.rejected[error.reason] += 1
                if len(inspection.unread) < _MAX_UNREAD:
                    inspection.unread.append(f"{path.name}: {error}")
                continue
            if other is not None:
                others[path.name, other] = None
            if other is None or decoded.events:
                inspection.rejected.update(decoded.reasons)
            for span in decoded.spans:
                spans.setdefault((span.trace_id, span.span_id), span)
            logs += decoded.events
    for log in logs:
        owner = spans.get((log.trace_id, log.span_id))
        if owner is not None:
            owner.events.append(log.event)
    inspection.spans = len(spans)
    inspection.unread += [
        f"{name}: {_OTHER_SIGNALS[signal]}"
        for name, signal in list(others)[:_MAX_UNREAD]
        if signal != "logs" or not spans
    ]
    read = extract_requests(list(spans.values()), settings)
    inspection.not_requests = read.not_requests
    inspection.traces = list(zip(read.traces, read.origins, strict=True))
    return inspection


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for inside in sorted(path.iterdir()):
            if inside.is_file() and not inside.name.startswith("."):
                yield inside


def _bodies(path: Path) -> Iterator[bytes]:
    with open_input(path) as file:
        data = file.read(MAX_BODY + 1)  # bounded, since a file may be endless
    if len(data) > MAX_BODY:
        raise OSError(f"{path}: more than {MAX_BODY} bytes")
    if not _is_json(data):
        yield data
        return
    lines = [line for line in data.splitlines() if line.strip()]
    # the first line of one body printed over several lines is not a complete object
    alone = len(lines) > 1 and all(line.rstrip().endswith(b"}") for line in lines[:2])
    yield from lines if alone else [data]


def _is_json(body: bytes) -> bool:
    """Return whether a body is JSON: a list is that of another form, and named as it."""
    return is_json_body(body) or body[:1] == b"["


def _decode(body: bytes) -> DecodedRequest:
    """Decode spans or else log events, as protobuf does not say which it holds."""
    form = _is_json(body)
    decoded = decode_traces(body, json=form)
    if decoded.spans or (form and b"esourceLogs" not in body and b"esource_logs" not in body):
        return decoded
    logs = decode_logs(body, json=form)
    return logs if logs.events else decoded


def inspection_to_dict(inspection: Inspection) -> dict[str, Any]:
    """Return the traces with the spans of their fields, and the counts, in JSON form."""
    return {
        "requests": [
            describe_request(
                trace.model_dump(mode="json", exclude_none=True), origins, grade_fields(trace)
            )
            for trace, origins in inspection.traces
        ],
        "not_requests": dict(inspection.dropped),
        "nearest": [
            {**asdict(one), "cure": _not_request_cure(one)} for one in inspection.not_requests
        ],
        "rejected": dict(inspection.rejected),
        "unread": inspection.unread,
        "spans": inspection.spans,
        "bodies": inspection.bodies,
    }


def format_trace_lines(inspection: Inspection) -> Iterator[str]:
    """Yield the native traces as JSON lines."""
    for trace, _ in inspection.traces:
        yield trace.model_dump_json(exclude_none=True)


def print_request(
    trace: Trace,
    origins: FieldOrigins,
    grades: Mapping[str, str],
    out: Console,
    *,
    prices: PriceTable | None = None,
) -> None:
    """Print a table of the fields of a trace, their values, grades and spans.

    What the tokens cost is estimated by `prices`, by default the list prices.
    """
    prices = prices or list_prices()
    table = Table(
        title=Text(escape_control(f"{trace.service}  {trace.trace_id}")), title_justify="left"
    )
    table.add_column("field")
    table.add_column("value", overflow="fold", ratio=3)
    table.add_column("source", overflow="fold")
    table.add_column("from", overflow="fold", ratio=1)
    for name, value in _rows(trace, prices):
        sources = (
            escape_control(f"{one.name} ({one.convention})")
            for one in origins.get(name, ())
            if one.found
        )
        table.add_row(
            name, Text(value), grades.get(name, ""), Text("\n".join(dict.fromkeys(sources)))
        )
    out.print(table)
    for advice in _advice(trace, origins):
        out.print(f"  {escape_control(advice)}", markup=False, highlight=False)
    if estimate_cost(trace, prices) == NoScore(Reason.NO_PRICE):
        cure = "set costs.prices, or let the call have gen_ai.usage.cost"
        line = escape_control(f"cost: no price of {trace.model}; {cure}")
        out.print(f"  {line}", markup=False, highlight=False)


# What to change in the application's instrumentation, by the reason of a guess.
_ADVICE = {
    Guess.CUT_FROM_PROMPT: "was cut out of the prompt: let the request's span have an input",
    Guess.USER_MESSAGE: "is what the user said to the model: let the request's span have an input",
    Guess.RETRIEVAL_QUERY: "is what was searched for: let the request's span have an input",
    Guess.TOOL_ARGUMENTS: "is what the model asked a tool: let the request's span have an input",
    Guess.STEP_OUTPUT: "is the output of a step: let the request's span have an output",
    Guess.LAST_CALL: "is the reply of the last of several calls: let the request's span have an"
    " output",
    Guess.FIRST_CHOICE: "is the first of several choices: let the request's span have an output",
    Guess.PARTIAL_USAGE: "are those of some calls: a call of the model tells none",
    Guess.REQUESTED_MODEL: "is the one that was asked for: no span has gen_ai.response.model",
}


# What to do about a field that is missing, by the reason, else by the field.
_CURES_BY_REASON = {
    Reason.CONTENT_HIDDEN: "the sender masks it: unset OPENINFERENCE_HIDE_INPUTS and"
    " OPENINFERENCE_HIDE_OUTPUTS, or the product's rule (of Koog: setVerbose(true))",
    Reason.PASSAGES_ID_ONLY: "spans have ids alone: add the texts, or set resolvers.sources",
    Reason.PASSAGES_TRUNCATED: "the sender cuts it: raise"
    " OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT and OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    Reason.QUERY_TRUNCATED: "the sender cuts it: raise OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    Reason.ANSWER_TRUNCATED: "the sender cuts it: raise OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    Reason.PROMPT_ONLY: "spans have the whole prompt alone: give the request's span the question as"
    " input.value",
    Reason.REDACTION_FAILED: "a rule of privacy.redact ran out of time: make its pattern simpler",
}
# These settings switch the capture of texts on, by the convention of the span that has none.
_CAPTURES = {
    "openllmetry": "TRACELOOP_TRACE_CONTENT=true",
    "otel_genai": "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true; of Azure:"
    " AZURE_TRACING_GEN_AI_CONTENT_RECORDING_ENABLED=true",
    "content_events": "of Semantic Kernel:"
    " SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true",
    "haystack": "HAYSTACK_CONTENT_TRACING_ENABLED=true",
    "vercel_ai": "recordInputs: true and recordOutputs: true in experimental_telemetry",
    "logfire": "InstrumentationSettings(include_content=True)",
    "openinference": "OPENINFERENCE_HIDE_INPUTS=false and OPENINFERENCE_HIDE_OUTPUTS=false",
    "langfuse": "@observe(capture_input=True, capture_output=True)",
    "sentry": "send_default_pii=True; of JavaScript: recordInputs and recordOutputs",
    "spring_ai": "of Spring AI: an ObservationFilter that adds gen_ai.prompt and gen_ai.completion"
    " to the spans, as its log-prompt and log-completion write to the log alone",
    "langchain4j": "of Quarkus: quarkus.langchain4j.tracing.include-prompt=true and"
    " include-completion=true",
    "claude_code": "OTEL_LOG_USER_PROMPTS=1",
    "google_adk": "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental and"
    " OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_and_event",
}
_CAPTURED = ("query", "answer")
_CURES = {
    "query": "give the request's span input.value or gen_ai.input.messages",
    "answer": "give the request's span output.value or gen_ai.output.messages",
    "passages": "record the retrieval as a span (openinference.span.kind=RETRIEVER with"
    " retrieval.documents.0.document.content, or gen_ai.retrieval.documents)",
    "tokens": "let the model call have gen_ai.usage.input_tokens and output_tokens (a stream of"
    " OpenAI: stream_options={'include_usage': true})",
    "model": "let the model call have gen_ai.response.model",
    "finish_reason": "let the model call have gen_ai.response.finish_reasons",
    "session": "let a span have session.id or gen_ai.conversation.id",
}
# Applications that record a field elsewhere are told to record it here.
_RECORDED_AS = {
    "query": "input.value",
    "answer": "output.value",
    "passages": "retrieval.documents.0.document.content of a span of the kind RETRIEVER, or"
    " gen_ai.retrieval.documents",
}
_PARTED = (
    "or part the passages in the prompt by tags (<document>) or numbers ([1]): blank lines part"
    " paragraphs as well"
)
_NEVER_TAKEN = "or name the tool that retrieves in otlp.tool_names"
_MAX_NAMED_TOOLS = 3  # in one line; each has a line of its own, too


def _advice(trace: Trace, origins: FieldOrigins) -> Iterator[str]:
    """Yield what was guessed or is missing, what was looked at, and how to change it."""
    for guessed, guess in (trace.guessed or {}).items():
        if guess in _ADVICE:
            yield f"{guessed}: {_ADVICE[guess]}"
    for field_name, grade in grade_fields(trace).items():
        reason = trace.missing.get(field_name)
        if grade != "missing" and reason is None:
            continue
        looked_at = [one for one in origins.get(field_name, ()) if not one.found]
        named = dict.fromkeys(
            f"{one.name} ({one.convention or 'no convention'})" for one in looked_at
        )
        spans = ", ".join(named)
        where = f"looked at {spans}; " if spans else ""
        cure = _CURES_BY_REASON.get(Reason(reason)) if reason else None
        if cure is None and field_name in _RECORDED_AS:
            cure = _unread_texts(looked_at, _RECORDED_AS[field_name])
        if cure is None:
            cure = _CURES[field_name]
            if field_name in _CAPTURED:
                cure += _capture(looked_at)
        if field_name == "passages" and cure is _CURES["passages"]:
            if tools := [tool.name for tool in origins.get("tools", ()) if tool.name]:
                cure = f"{cure}, {_NEVER_TAKEN}: [{', '.join(tools[:_MAX_NAMED_TOOLS])}]"
            elif (trace.guessed or {}).get("query") == Guess.CUT_FROM_PROMPT:
                cure = f"{cure}, {_PARTED}"
        yield f"{field_name}: {reason or 'not captured'}; {where}{cure}"
    for tool in origins.get("tools", ()):
        name = tool.name
        if not name:
            taken = "its result gives passages" if tool.found else "its result gives no passages"
            yield f"tool without a name: {taken}; let its span have gen_ai.tool.name to choose it"
        elif tool.found:
            yield f"tool {name}: its result gives passages; otlp.excluded_tools: [{name}] if not so"
        else:
            yield f"tool {name}: its result gives no passages; otlp.tool_names: [{name}] if it does"


def _capture(looked_at: Sequence[FieldOrigin]) -> str:
    """Say how the products that wrote the spans are told to capture texts."""
    conventions = dict.fromkeys(one.convention for one in looked_at)
    switches = [_CAPTURES[name] for name in conventions if name in _CAPTURES]
    if not switches:
        return ""
    return f", or switch its capture on ({', '.join(switches)})"


def _unread_texts(origins: Sequence[FieldOrigin], recorded_as: str) -> str | None:
    """Name the first text that may be the field, and where it would be read."""
    holder = next((one for one in origins if one.unread), None)
    if holder is None:
        return None
    keys = ", ".join(holder.unread)
    return f"{holder.name} has text at {keys} that is not understood: record it as {recorded_as}"


# Tell what to do about a trace without a request: by the reason, else by the nearest span's role.
_MARK = (
    "mark the model call (gen_ai.operation.name=chat or openinference.span.kind=LLM) or the"
    " retrieval (openinference.span.kind=RETRIEVER) in the same trace"
)
_NOT_REQUEST_CURES = {
    "own": "a span of ragmeter itself: nothing to mend",
    "evaluator": "an evaluation of an answer: nothing to mend; the answer is in a trace of its own",
    "no_time": "let its span have an end time",
    "invalid": "its ids, numbers or texts cannot be those of a request",
    "llm": "a model call that asks for tools alone: send the call that answers in the same trace"
    " (propagate the context, keep one trace for a request)",
    "tool": "a tool without a model call: otlp.tool_names: [{name}] if it retrieves, else {mark}",
    "chain": "a step without a model call or a retrieval: {mark}",
    "vector_db": "indexing, if it writes; if it searches let it have db.operation.name=search, or"
    " {mark}",
    "embedding": "indexing, if no question is asked; else {mark}",
    "other": "no convention marks it: instrument the model's client or framework (OpenInference,"
    " OpenLLMetry, OpenTelemetry's GenAI), or {mark}",
}


def _not_request_cure(one: NotRequest) -> str:
    cure = _NOT_REQUEST_CURES.get(one.reason) or _NOT_REQUEST_CURES.get(one.role)
    told = (cure or _NOT_REQUEST_CURES["other"]).format(name=one.nearest.name, mark=_MARK)
    if one.nearest.unread and one.role == "other":
        told += f"; its texts at {', '.join(one.nearest.unread)} are read as input.value and"
        told += " output.value"
    return told


def describe_not_request(one: NotRequest) -> str:
    """Return a line about a trace without a request: its nearest span, and the nearest cure."""
    span = f"{one.nearest.name} ({one.nearest.convention or 'no convention'})"
    line = f"no request in trace {one.trace_id}: {one.reason}; nearest span {span}: "
    return escape_control(line + _not_request_cure(one))


def print_inspection(
    inspection: Inspection, out: Console, *, prices: PriceTable | None = None
) -> None:
    """Print a table for each request, then the counts."""
    for trace, origins in inspection.traces:
        print_request(trace, origins, grade_fields(trace), out, prices=prices)
    alike: dict[tuple[str, str, str, str], list[NotRequest]] = {}
    for lost in inspection.not_requests:
        key = (lost.reason, lost.role, lost.nearest.name, lost.nearest.convention)
        alike.setdefault(key, []).append(lost)
    for several in list(alike.values())[:_MAX_NOT_REQUESTS]:
        more = f" ({len(several) - 1} more like it)" if len(several) > 1 else ""
        out.print(describe_not_request(several[0]) + more, markup=False, highlight=False)
    for title, counts in (
        ("traces that are not requests", inspection.dropped),
        ("could not be read", inspection.rejected),
    ):
        if counts:
            listed = ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items()))
            out.print(f"{title}: {listed}", markup=False)
    for line in inspection.unread:
        out.print(escape_control(line), markup=False, highlight=False)
    out.print(
        f"{len(inspection.traces)} requests in {inspection.spans} spans of"
        f" {inspection.bodies} bodies"
        + "; inspect reads OTLP export requests"
        * (not inspection.spans),
        markup=False,
    )


def _cost(trace: Trace, prices: PriceTable) -> str:
    """Return what a trace cost, as a span tells it or by the prices of its tokens."""
    if trace.usage is not None and trace.usage.cost_usd is not None:
        return f"{trace.usage.cost_usd:.3g} USD, as a span tells it"
    estimated = estimate_cost(trace, prices)
    if isinstance(estimated, NoScore):
        return "-"
    told = f"{estimated:.3g} USD, estimated from tokens, prices of {prices.date}"
    found = prices.find(trace.model or "")
    if trace.usage is None or not trace.usage.cached_input_tokens or found is None:
        return told
    cached = "as others, since no price of them is known" if found.cached is None else "as such"
    return f"{told}; cached tokens are priced {cached}"


def _rows(trace: Trace, prices: PriceTable) -> Iterator[tuple[str, str]]:
    passages = None
    if trace.passages is not None:
        listed = (
            f"{n}. [{escape_control(p.id)}] {_shorten(p.text) if p.text else '(no text)'}"
            for n, p in enumerate(trace.passages, 1)
        )
        passages = "\n".join(listed) or "(none retrieved)"
    for name, value in (
        ("query", _shorten(trace.query or "")),
        ("passages", passages),
        ("answer", "(empty)" if trace.answer == "" else _shorten(trace.answer or "")),
    ):
        reason = trace.missing.get(name)
        yield name, " ".join(part for part in (value, reason and f"({reason})") if part) or "-"
    status = trace.status if trace.error is None else f"{trace.status}: {_shorten(trace.error)}"
    yield "status", status
    timings = {stage: s for stage, s in (trace.timings or {}).items() if s is not None}
    yield "timings", ", ".join(f"{stage} {s:.3f} s" for stage, s in timings.items()) or "-"
    usage = trace.usage.model_dump(exclude_none=True) if trace.usage else {}
    usage.pop("cost_usd", None)
    yield "tokens", ", ".join(f"{name} {number}" for name, number in usage.items()) or "-"
    yield "cost", _cost(trace, prices)
    yield "model", escape_control(trace.model or "-")
    cited = len(trace.citations or ())
    yield "citations", f"{cited} beside the text" if cited else "-"
    yield "finish_reason", escape_control(trace.finish_reason or "-")
    yield "session", escape_control(trace.tags.get("session", "-"))
    yield (
        "tags",
        ", ".join(escape_control(f"{name}={value}") for name, value in trace.tags.items()) or "-",
    )
    if trace.probability < 1:
        yield "sampling", f"probability {trace.probability:g}"


def _shorten(text: str) -> str:
    return escape_control(text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]} …")
