"""Select the scores to export and encode them as OTLP requests.

Logs are events of the OTel GenAI conventions, spans are those of OpenInference. Ids are hashes of
service, trace, metric and scorer: a batch that was sent twice because its reply was lost carries
the same ids twice, so a receiver can tell.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status
from ragmeter import __version__
from ragmeter.aggregate.evidence import CUT_MARK
from ragmeter.config.loader import ConfigError
from ragmeter.config.reporting import ResultsExportSettings
from ragmeter.core.metric_specs import MetricTier, base_name, find_spec
from ragmeter.core.score import BUILTIN_SCORER, Score, ScoredTrace, ScoreState
from ragmeter.ingest.spans import (
    EVALUATOR,
    KIND,
    OWN_SCOPE,
    OWN_SERVICE,
    RESULT_EVENT,
    replace_surrogates,
)
from ragmeter.metrics.registry import metric_specs
from ragmeter.trace import SpanRef, Trace

# Scorers of the model tier. By name: their module needs an extra that may not be installed.
MODEL_SCORERS = frozenset(("hhem", "hhem_fulltext", "mini"))

PREFIX = "evaluations.0.evaluation."
# Attributes that differ from one result to the next; pairs of all others are cached.
UNIQUE = frozenset(
    (
        "gen_ai.evaluation.score.value",
        "gen_ai.evaluation.explanation",
        "log.record.uid",
        f"{PREFIX}score",
        f"{PREFIX}explanation",
        f"{PREFIX}metadata",
    )
)

_Plain = str | float | None


def tier_of_scorer(scorer: str) -> MetricTier:
    """Return the tier that a scorer belongs to."""
    if scorer == BUILTIN_SCORER:
        return "cheap"
    return "model" if scorer in MODEL_SCORERS else "judge"


@dataclass(slots=True)  # frozen would take three times as long to make
class ExportedResult:
    """One score on its way out, never changed; `at` is its time in nanoseconds of Unix time."""

    trace_id: str
    service: str
    span: SpanRef | None
    metric: str
    scorer: str
    state: ScoreState
    value: float | None
    reason: str | None
    probability: float
    fingerprint: str | None
    explanation: str | None
    at: int

    @property
    def label(self) -> str | None:
        """`pass` or `fail` of a metric that is a yes or no with a better side.

        A mean has no label: alert rules define where good begins.
        """
        if self.state is ScoreState.NOT_APPLICABLE:
            return str(self.state)
        spec = find_spec(metric_specs(), self.metric)
        if spec is None or spec.kind != "ratio" or spec.good is None or self.value not in (0, 1):
            return None
        return "pass" if (self.value == 1) == (spec.good == "higher") else "fail"


class ResultSelection:
    """The filters of the settings; without `texts` no explanations are sent.

    Raises:
        ConfigError: A metric or scorer does not exist; a typing error would export nothing.
    """

    def __init__(self, settings: ResultsExportSettings, *, texts: bool = True) -> None:
        known = {scorer for spec in metric_specs().values() for scorer in spec.scorers}
        wrong = [name for name in settings.metrics if find_spec(metric_specs(), name) is None]
        wrong += [name for name in settings.scorers if name not in known]
        if wrong:
            raise ConfigError(f"results_export: no such metric or scorer: {', '.join(wrong)}")
        self._metrics = frozenset(settings.metrics)
        self._scorers = frozenset(settings.scorers)
        self._tiers = frozenset(settings.tiers)
        self._states = frozenset(settings.states)
        self._chars = settings.explanation_chars if texts else 0

    def wants(self, score: Score) -> bool:
        """Return whether a score passes all filters."""
        return (
            score.state in self._states
            and (
                not self._metrics
                or score.metric in self._metrics
                or base_name(score.metric) in self._metrics
            )
            and (not self._scorers or score.scorer in self._scorers)
            and (not self._tiers or tier_of_scorer(score.scorer) in self._tiers)
        )

    def of(self, trace: Trace, scored: ScoredTrace, at: int) -> Iterator[ExportedResult]:
        """Yield the results of one trace that pass the filters."""
        for score in scored.results:
            if self.wants(score):
                yield ExportedResult(
                    trace_id=trace.trace_id,
                    service=trace.service,
                    span=trace.span,
                    metric=score.metric,
                    scorer=score.scorer,
                    state=score.state,
                    value=score.value,
                    reason=score.reason,
                    probability=score.probability,
                    fingerprint=score.fingerprint,
                    explanation=self._explained(score.detail),
                    at=at,
                )

    def _explained(self, detail: dict[str, Any] | None) -> str | None:
        """Return the details of a score as JSON text, cut to the configured length."""
        if not detail or not self._chars:
            return None
        text = json.dumps(detail, ensure_ascii=False, separators=(",", ":"), default=str)
        return text if len(text) <= self._chars else text[: self._chars] + CUT_MARK


def encode_logs(results: Sequence[ExportedResult]) -> bytes:
    """Encode the body for `/v1/logs`."""
    scope = ScopeLogs(scope=_scope(), log_records=[_record(result) for result in results])
    groups = [ResourceLogs(resource=_resource(), scope_logs=[scope])]
    return ExportLogsServiceRequest(resource_logs=groups).SerializeToString()


def encode_spans(results: Sequence[ExportedResult]) -> bytes:
    """Encode the body for `/v1/traces`; results without a span to link to are left out."""
    spans = [_span(result) for result in results if result.span is not None]
    scope = ScopeSpans(scope=_scope(), spans=spans)
    groups = [ResourceSpans(resource=_resource(), scope_spans=[scope])]
    return ExportTraceServiceRequest(resource_spans=groups).SerializeToString()


def _read_rejected_logs(reply: bytes) -> tuple[int, str]:
    partial = ExportLogsServiceResponse.FromString(reply).partial_success
    return partial.rejected_log_records, partial.error_message


def _read_rejected_spans(reply: bytes) -> tuple[int, str]:
    partial = ExportTraceServiceResponse.FromString(reply).partial_success
    return partial.rejected_spans, partial.error_message


class Signal(NamedTuple):
    """A kind of OTLP request: its path, how results become a body, and what a reply says.

    `read_rejected` returns how many items of a request the receiver did not take, and its words; it
    raises `DecodeError` if the reply is none.
    """

    name: str
    path: str
    encode: Callable[[Sequence[ExportedResult]], bytes]
    read_rejected: Callable[[bytes], tuple[int, str]]


LOGS = Signal("logs", "/v1/logs", encode_logs, _read_rejected_logs)
SPANS = Signal("spans", "/v1/traces", encode_spans, _read_rejected_spans)


def _resource() -> Resource:
    attributes = {"service.name": OWN_SERVICE, "service.version": __version__}
    return Resource(attributes=_attributes(attributes.items()))


def _scope() -> InstrumentationScope:
    return InstrumentationScope(name=OWN_SCOPE, version=__version__)


def _attributes(pairs: Iterable[tuple[str, _Plain]]) -> list[KeyValue]:
    return [
        _pair(name, value) if name in UNIQUE else _cached_pair(name, value)
        for name, value in pairs
        if value is not None
    ]


def _pair(name: str, value: str | float) -> KeyValue:
    pair = KeyValue(key=name)  # setting the value is three times as fast as giving it
    if isinstance(value, str):
        pair.value.string_value = replace_surrogates(value)
    else:
        pair.value.double_value = value
    return pair


# Most pairs come again and again: 4,096 hold those of a busy agent, and the ids of a trace for its
# next results.
_cached_pair = lru_cache(4096)(_pair)


def _score_id(result: ExportedResult) -> bytes:
    about = (result.service, result.trace_id, result.metric, result.scorer, result.fingerprint)
    return blake2b(ascii(about).encode(), digest_size=24, person=b"ragmeter").digest()


def _own_attributes(result: ExportedResult) -> dict[str, _Plain]:
    """Return the attributes that no convention has a name for."""
    return {
        "ragmeter.service": result.service,
        "ragmeter.trace_id": result.trace_id,
        "ragmeter.scorer": result.scorer,
        "ragmeter.state": str(result.state),
        "ragmeter.reason": result.reason,
        "ragmeter.fingerprint": result.fingerprint,
        "ragmeter.probability": result.probability,
    }


def _error(result: ExportedResult) -> str | None:
    """Return `error.type` of a result that should have a value and has none."""
    return (result.reason or "_OTHER") if result.state is ScoreState.UNSCORED else None


def _record(result: ExportedResult) -> LogRecord:
    attributes: Mapping[str, _Plain] = {
        "gen_ai.evaluation.name": result.metric,
        "gen_ai.evaluation.score.value": result.value,
        "gen_ai.evaluation.score.label": result.label,
        "gen_ai.evaluation.explanation": result.explanation,
        "error.type": _error(result),
        "log.record.uid": _score_id(result).hex(),
        **_own_attributes(result),
    }
    record = LogRecord(
        time_unix_nano=result.at,
        observed_time_unix_nano=result.at,
        severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
        severity_text="INFO",
        event_name=RESULT_EVENT,
        attributes=_attributes(attributes.items()),
    )
    if result.span is not None:
        record.trace_id = bytes.fromhex(result.span.trace_id)
        record.span_id = bytes.fromhex(result.span.span_id)
    return record


def _span(result: ExportedResult) -> Span:
    if result.span is None:
        raise RuntimeError("a result without a span cannot be sent as one")
    mark = _score_id(result)
    by = result.scorer + (f"@{result.fingerprint}" if result.fingerprint else "")
    error = _error(result)
    evaluation = {
        "name": result.metric,
        "score": result.value,
        "label": result.label,
        # an evaluation needs a score, a label or an explanation
        "explanation": f"unscored: {error}" if error else result.explanation,
        "annotator_kind": "LLM" if tier_of_scorer(result.scorer) == "judge" else "CODE",
        "identifier": by,
        # what tools that keep evaluations and drop spans still see
        "metadata": json.dumps({k: v for k, v in _own_attributes(result).items() if v is not None}),
    }
    attributes: Mapping[str, _Plain] = {
        KIND: EVALUATOR,
        **{PREFIX + name: value for name, value in evaluation.items()},
        "error.type": error,
        **_own_attributes(result),
    }
    target = Span.Link(
        trace_id=bytes.fromhex(result.span.trace_id), span_id=bytes.fromhex(result.span.span_id)
    )
    return Span(
        trace_id=mark[:16],
        span_id=mark[16:],
        name=replace_surrogates(f"{result.metric} evaluation"),
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=result.at,
        end_time_unix_nano=result.at,
        attributes=_attributes(attributes.items()),
        links=[target],
        status=Status(code=Status.STATUS_CODE_ERROR, message=replace_surrogates(error))
        if error
        else Status(code=Status.STATUS_CODE_OK),
    )
