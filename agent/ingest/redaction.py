"""Redact traces, spans and log events before they are stored or queued.

Redaction of attribute values: nested ones, and JSON that is written into a text.

A text that is JSON is opened first. Escapes would hide things from a pattern (`a\u0040b.com`), and
a replacement in the middle of a number would make the whole unreadable.

Redaction of what comes in: traces before they are queued, spans before they wait for others.

Where a rule cannot be applied to a text, the text is dropped and the trace says so: the field is
missing with the reason `redaction_failed`. Ids, numbers and the names of services and models are
left alone: what is counted rests on them.
"""

from __future__ import annotations

import fnmatch
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from ragmeter.config.privacy import TEXT_FIELDS, PrivacySettings
from ragmeter.core.counters import Counts
from ragmeter.core.redaction_rules import RedactionError, RedactionRule
from ragmeter.ingest.native import DecodedTrace
from ragmeter.ingest.spans import LogEvent, Span, SpanEvent
from ragmeter.trace import CANARY, Citation, Message, Passage, Reference, Trace

HIDDEN = "__REDACTED__"
"""What stands for a text that could not be redacted: conventions take it for hidden content."""

_MAX_DEPTH = 24  # of nested values, and of JSON in JSON; deeper is dropped
_DIGITS = 9  # of a whole number that is looked at: shorter ones are counts, and tell little

_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_PLAIN = {"b": " ", "f": " ", "n": "\n", "r": "\r", "t": "\t"}


def _unescaped(text: str) -> str:
    """A text with the escapes of JSON resolved."""
    plain = _ESCAPE.sub(
        lambda m: chr(int(m[1], 16)) if m[1] else _PLAIN.get(m[2], m[2]),
        text,
    )
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _ValueRedactor:
    """`redact` gives a text as it may be kept or raises `Unredacted`; `drop` matches names that
    must go, nested ones with dots between."""

    def __init__(self, redact: Callable[[str], str], drop: re.Pattern[str] | None) -> None:
        self._redact = redact
        self._drop = drop

    def attributes(self, values: Mapping[str, Any], *, names: bool = False) -> dict[str, Any]:
        """`names`: they come from whoever uses the application, and are redacted too."""
        found = {}
        for key, value in values.items():
            if self._stays(key):
                kept = self._guarded(key, "") if names else key
                found[str(kept)] = self._guarded(value, key)
        return found

    def text(self, text: str) -> str:
        """A text that is no attribute."""
        try:
            return self._text(text, 0)
        except RedactionError:
            return HIDDEN

    def _stays(self, name: str) -> bool:
        return self._drop is None or self._drop.match(name) is None

    def _guarded(self, value: Any, name: str) -> Any:
        try:
            return self._value(value, name, 0)
        except RedactionError:
            return HIDDEN

    def _value(self, value: Any, name: str, depth: int) -> Any:
        if isinstance(value, str):
            return self._text(value, depth, name)
        if isinstance(value, bool) or value is None or isinstance(value, float):
            return value
        if isinstance(value, int):
            written = str(value) if abs(value) >= 10**_DIGITS // 10 else ""
            found = self._redact(written) if written else written
            return value if found == written else found
        if depth >= _MAX_DEPTH:
            return None
        if isinstance(value, dict):
            return {
                self._redact(str(key)): self._value(item, f"{name}.{key}", depth + 1)
                for key, item in value.items()
                if self._stays(f"{name}.{key}") and self._stays(str(key))
            }
        if isinstance(value, list | tuple):
            return [self._value(item, name, depth + 1) for item in value]
        return self._redact(str(value))

    def _text(self, text: str, depth: int, name: str = "") -> str:
        if not text:
            return text
        head = text.lstrip()[:1]
        if head in '{["' and head and depth < _MAX_DEPTH:
            try:
                opened = from_json(text)
            except ValueError:
                opened = None
            if isinstance(opened, dict | list | str):
                found = self._value(opened, name, depth + 1)
                return text if found == opened else _written(found)
        plain = self._redact(text)
        if "\\" in plain:  # JSON that was cut still has its escapes
            opened_text = _unescaped(plain)
            found_text = self._redact(opened_text)
            if found_text != opened_text:
                return found_text
        return plain


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


FAILED = "redaction_failed"
_TRACE_SECONDS = 2.0  # for all texts of a trace together; ordinary ones take a millisecond

_CONVENTIONAL = re.compile(r"(?:gen_ai|promptflow)(?:\.[a-z_]+)+")
"""Names of events that conventions have given. Nobody writes into these."""

_Edits = list[tuple[int, int, int]]
"""(start, end, new length), in the order of one pass over a text."""


class _RedactionPass:
    """One trace or span on its way: counts, and the time that is left for it."""

    def __init__(
        self, rules: Sequence[RedactionRule], counts: Counts, monotonic: Callable[[], float]
    ):
        self._rules = rules
        self._counts = counts
        self._monotonic = monotonic
        self._until = monotonic() + _TRACE_SECONDS

    def _count(self, name: str, by: float = 1, **labels: str) -> None:
        key = (name, tuple(labels.items()))
        self._counts[key] = self._counts.get(key, 0) + by

    def failed(self, rule: str, reason: str) -> None:
        self._count("ragmeter_redaction_failures_total", rule=rule, reason=reason)

    def text(self, text: str, edits: list[_Edits] | None = None) -> str:
        """Raises `Unredacted`, which is counted."""
        for rule in self._rules:
            try:
                if self._monotonic() > self._until:
                    raise RedactionError(rule.name, "timeout")
                spans = rule.spans(text)
            except RedactionError as error:
                self.failed(error.rule, error.reason)
                raise
            if not spans:
                continue
            self._count("ragmeter_redactions_total", len(spans), rule=rule.name)
            parts, at = [], 0
            for start, end in spans:
                parts += [text[at:start], rule.replacement]
                at = end
            text = "".join([*parts, text[at:]])
            if edits is not None:
                edits.append([(start, end, len(rule.replacement)) for start, end in spans])
        return text

    def optional(self, text: str | None) -> str | None:
        """The text, or None where it could not be redacted."""
        try:
            return None if text is None else self.text(text)
        except RedactionError:
            return None


def _moved(place: int, passes: Iterable[_Edits], *, end: bool) -> int:
    """Where a place in a text is after its redaction; one within what was replaced is its edge."""
    for edits in passes:
        shift = 0
        for start, stop, length in edits:
            if place <= start:
                break
            if place < stop:
                place = start + (length if end else 0)
                break
            shift += length - (stop - start)
        place += shift
    return place


def _redact_event(event: SpanEvent, values: _ValueRedactor) -> None:
    # while a rule fails it must still be known what a convention's event is, and which are ours
    if not _CONVENTIONAL.fullmatch(event.name):
        event.name = values.text(event.name)
    event.attributes = values.attributes(event.attributes)


class Redactor:
    """Applies what the settings say. Safe from any thread. Raises ValueError for a bad rule."""

    def __init__(
        self,
        settings: PrivacySettings | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self.update(settings or PrivacySettings())

    def update(self, settings: PrivacySettings) -> None:
        """Other settings from the next trace on. Where this raises ValueError the old ones hold."""
        of = {
            rule.name: RedactionRule(
                rule.name, rule.pattern, rule.replacement, settings.timeout_seconds, self._monotonic
            )
            for rule in settings.redact
        }
        fields: dict[str, list[RedactionRule]] = {
            field: [of[rule.name] for rule in settings.redact if field in rule.fields]
            for field in TEXT_FIELDS
        }
        globs = [fnmatch.translate(name.strip()) for name in settings.drop_attributes]
        drop = re.compile("|".join(globs)) if globs else None
        self._state = (settings.edits, list(of.values()), fields, drop)

    @property
    def edits(self) -> bool:
        """Whether there is anything to do."""
        return self._state[0]

    def text(self, text: str, counts: Counts) -> str | None:
        """Any text by all rules, or None where that fails."""
        return _RedactionPass(self._state[1], counts, self._monotonic).optional(text)

    # Traces -------------------------------------------------------------------------------------

    def trace(self, good: DecodedTrace, counts: Counts) -> DecodedTrace:
        """The trace as it may be kept. Its bytes are those of the fields that we know: what else
        the sender wrote, no rule has looked at."""
        edits, _, fields, drop = self._state
        if not edits:
            return good
        work = _TraceRedaction(good.trace, fields, drop, counts, self._monotonic)
        trace = work.redacted()
        return DecodedTrace(
            trace, trace.model_dump_json(exclude_none=True).encode("utf-8", "replace")
        )

    # Spans --------------------------------------------------------------------------------------

    def span(self, span: Span, counts: Counts) -> Span:
        """The same span, changed: attributes dropped, and every text of it, whatever field it may
        become, by every rule. A text that cannot be redacted becomes one that says it is hidden."""
        edits, rules, _, drop = self._state
        if edits:
            values = self._values(rules, drop, counts)
            span.attributes = values.attributes(span.attributes)
            span.resource = values.attributes(span.resource)
            span.name = values.text(span.name)
            span.status_message = values.text(span.status_message)
            for event in span.events:
                _redact_event(event, values)
        return span

    def log_event(self, log: LogEvent, counts: Counts) -> LogEvent:
        """The same for the event that a log record carries."""
        edits, rules, _, drop = self._state
        if edits:
            values = self._values(rules, drop, counts)
            _redact_event(log.event, values)
        return log

    def _values(
        self, rules: Sequence[RedactionRule], drop: re.Pattern[str] | None, counts: Counts
    ) -> _ValueRedactor:
        return _ValueRedactor(_RedactionPass(rules, counts, self._monotonic).text, drop)


class _TraceRedaction:
    """The redaction of one trace."""

    def __init__(
        self,
        trace: Trace,
        fields: Mapping[str, Sequence[RedactionRule]],
        drop: re.Pattern[str] | None,
        counts: Counts,
        monotonic: Callable[[], float],
    ) -> None:
        self._trace = trace
        self._drop = drop
        self._by = {
            name: _RedactionPass(rules, counts, monotonic) for name, rules in fields.items()
        }
        self._missing = dict(trace.missing)

    def redacted(self) -> Trace:
        trace = self._trace
        moved: list[_Edits] = []
        update: dict[str, Any] = {
            "query": self._field("query", trace.query),
            "answer": self._field("answer", trace.answer, moved),
            "history": self._history(trace.history),
            "passages": self._passages(trace.passages),
            "error": self._error(trace.error),
            "tags": self._values("tags").attributes(trace.tags, names=True),
            "reference": self._reference(trace.reference),
        }
        update["tags"] = {k: v for k, v in update["tags"].items() if HIDDEN not in (k, v)}
        if trace.reference is not None and update["reference"] is None:
            update["tags"][CANARY] = "true"  # without its reference it is no traffic either
        if moved:
            update["citations"] = [self._citation(one, moved) for one in trace.citations or ()]
        return trace.model_copy(update={**update, "missing": self._missing})

    def _values(self, field: str) -> _ValueRedactor:
        return _ValueRedactor(self._by[field].text, self._drop)

    def _field(self, name: str, text: str | None, moved: list[_Edits] | None = None) -> str | None:
        try:
            return None if text is None else self._by[name].text(text, moved)
        except RedactionError:
            self._missing[name] = FAILED
            return None

    def _history(self, history: Sequence[Message] | None) -> list[Message] | None:
        if history is None:
            return None
        found = []
        for turn in history:
            role, text = (self._by["history"].optional(item) for item in (turn.role, turn.text))
            found.append(Message(role=HIDDEN if role is None else role, text=text or ""))
        return found

    def _passages(self, passages: Sequence[Passage] | None) -> list[Passage] | None:
        if passages is None:
            return None
        values, found = self._values("passages"), []
        for passage in passages:
            text = self._field("passages", passage.text)
            metadata = passage.metadata
            if metadata is not None:
                metadata = values.attributes(metadata, names=True)
            found.append(passage.model_copy(update={"text": text, "metadata": metadata}))
        return found

    def _error(self, error: str | None) -> str | None:
        return None if error is None else self._by["error"].optional(error) or FAILED

    def _reference(self, reference: Reference | None) -> Reference | None:
        """None where a text of it cannot be redacted: by a part of it an answer would be judged
        wrongly."""
        if reference is None:
            return None
        by = self._by["reference"].text

        def redacted(value: Any) -> Any:
            if isinstance(value, str):
                return by(value)
            if isinstance(value, list):
                return [redacted(item) for item in value]
            if isinstance(value, dict):
                return {name: redacted(item) for name, item in value.items()}
            return value

        try:
            found = redacted(reference.model_dump(exclude={"conflict"}))
        except RedactionError:
            return None
        return Reference.model_validate({**found, "conflict": reference.conflict})

    @staticmethod
    def _citation(citation: Citation, moved: list[_Edits]) -> Citation:
        start, end = citation.start, citation.end
        return citation.model_copy(
            update={
                "start": None if start is None else _moved(start, moved, end=False),
                "end": None if end is None else _moved(end, moved, end=True),
            }
        )
