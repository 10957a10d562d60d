r"""Redact traces before they are queued, and spans and log events before they are stored.

A text to which a rule cannot be applied is dropped, and the trace says so: the field is missing
with the reason `redaction_failed`. Ids, numbers and names of services and models are left alone,
because counts rest on them. A text that is JSON is parsed first: escapes would hide findings from a
pattern (`a\u0040b.com`), and a replacement within a number would make the JSON unreadable.
"""

from __future__ import annotations

import fnmatch
import json
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import from_json

from ragmeter.config.inputs import TEXT_FIELDS, PrivacySettings
from ragmeter.core.counters import Counts
from ragmeter.core.folded_text import FoldedText, fold_text, unescape_text
from ragmeter.core.redaction_rules import (
    RedactionError,
    RedactionRule,
    is_named_device,
    is_named_phone,
    is_named_secret,
)
from ragmeter.ingest.native import DecodedTrace
from ragmeter.ingest.spans import LogEvent, Span, SpanEvent
from ragmeter.reasons import Reason
from ragmeter.trace import CANARY, Citation, Message, Passage, Reference, Trace

# Replaces a text that could not be redacted; conventions take it for hidden content.
HIDDEN = "__REDACTED__"
FAILED = Reason.REDACTION_FAILED

# For one pattern in one text: sound patterns take milliseconds, and those that explode must not
# hold up the senders.
MAX_SEARCH_SECONDS = 0.25
_TRACE_SECONDS = 2.0  # for all texts of a trace together; ordinary ones take a millisecond
_MAX_DEPTH = 24  # of nested values, and of JSON in JSON; deeper values are dropped
_MIN_NUMBER = 10**8  # smaller whole numbers are counts, which identify nobody
# Names of events that conventions define; no user writes into these.
_CONVENTIONAL = re.compile(r"(?:gen_ai|promptflow)(?:\.[a-z_]+)+")

# Whether a value is what a built-in rule is about, by the name of its field.
_BY_NAME: Mapping[str, Callable[[str, str], bool]] = {
    "secret": is_named_secret,
    "phone": is_named_phone,
    "device": is_named_device,
}

# (start, end, new length) of each replacement, in the order of one pass over a text
_Edits = list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class _CompiledSettings:
    edits: bool
    rules: list[RedactionRule]
    field_rules: dict[str, list[RedactionRule]]
    drop: re.Pattern[str] | None


class Redactor:
    """Applies the redaction rules of the privacy settings. Safe to use from any thread.

    The methods count redactions and failures in the `counts` of the caller.

    Raises:
        ValueError: A rule is invalid.

    Attributes:
        settings: What is applied.
    """

    def __init__(
        self,
        settings: PrivacySettings | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self.update(settings or PrivacySettings())

    def update(self, settings: PrivacySettings) -> None:
        """Use other settings from the next trace on.

        Raises:
            ValueError: A rule is invalid; the settings before stay in use.
        """
        rules = {
            rule.name: RedactionRule(
                name=rule.name,
                pattern=rule.pattern,
                replacement=rule.replacement,
                timeout=MAX_SEARCH_SECONDS,
                monotonic=self._monotonic,
            )
            for rule in settings.redact
        }
        field_rules: dict[str, list[RedactionRule]] = {
            field: [rules[rule.name] for rule in settings.redact if field in rule.fields]
            for field in TEXT_FIELDS
        }
        globs = [fnmatch.translate(name.strip()) for name in settings.drop_attributes]
        drop = re.compile("|".join(globs)) if globs else None
        self._settings = _CompiledSettings(settings.edits, list(rules.values()), field_rules, drop)
        self.settings = settings

    @property
    def edits(self) -> bool:
        """Whether there is anything to redact or drop."""
        return self._settings.edits

    def text(self, text: str, counts: Counts) -> str | None:
        """Apply all rules to a text; None if a rule fails."""
        return self._pass(counts).optional(text)

    def trace(self, good: DecodedTrace, counts: Counts) -> DecodedTrace:
        """Redact a trace.

        The stored bytes hold only fields of `Trace`: no rule has seen what else the sender wrote.
        """
        if not self.edits:
            return good
        trace = _TraceRedaction(good.trace, self._settings, counts, self._monotonic).redacted()
        body = trace.model_dump_json(exclude_none=True).encode("utf-8", "replace")
        return DecodedTrace(trace, body)

    def extracted(self, traces: Sequence[Trace], counts: Counts) -> list[Trace]:
        """Redact traces made of redacted spans: what a stream had in pieces is whole only here."""
        if not self.edits:
            return list(traces)
        return [self.trace(DecodedTrace(trace, b""), counts).trace for trace in traces]

    def span(self, span: Span, counts: Counts) -> Span:
        """Drop attributes of a span and apply every rule to every text, in place."""
        if self.edits:
            redaction = self._pass(counts)
            span.attributes = redaction.attributes(span.attributes)
            span.resource = redaction.attributes(span.resource)
            span.name = redaction.or_hidden(span.name)
            span.status_message = redaction.or_hidden(span.status_message)
            for event in span.events:
                redaction.event(event)
        return span

    def log_event(self, log: LogEvent, counts: Counts) -> LogEvent:
        """Redact the event of a log record in place, as `span` does."""
        if self.edits:
            self._pass(counts).event(log.event)
        return log

    def _pass(self, counts: Counts) -> _RedactionPass:
        settings = self._settings
        return _RedactionPass(settings.rules, settings.drop, counts, self._monotonic)


@dataclass(frozen=True, slots=True)
class _Finding:
    """What a rule finds from `start` to `end` of a text."""

    start: int
    end: int
    rule: RedactionRule


def _resolve(found: Sequence[_Finding]) -> tuple[list[_Finding], list[_Finding]]:
    """Return findings without overlaps, and guesses that overlapped longer findings.

    The longest finding names what stands there. Where another overlaps it, all of both is replaced,
    unless the other is only a guess: its rule is to look again at what is left.
    """
    kept: list[_Finding] = []  # by their places
    guesses: list[_Finding] = []
    for finding in sorted(found, key=lambda one: one.start - one.end):  # at a tie the first rule
        first = bisect_right(kept, finding.start, key=lambda one: one.end)
        last = bisect_left(kept, finding.end, key=lambda one: one.start)
        rivals = kept[first:last]
        if not rivals:
            kept.insert(first, finding)
        elif finding.rule.guess:
            guesses.append(finding)
        else:
            longest = max(rivals, key=lambda one: one.end - one.start)
            start = min(finding.start, rivals[0].start)
            end = max(finding.end, rivals[-1].end)
            kept[first:last] = [replace(longest, start=start, end=end)]
    return kept, guesses


def _gaps(
    kept: Sequence[_Finding], dropped: Sequence[_Finding], size: int
) -> Iterator[tuple[RedactionRule, int, int]]:
    """Yield the rules of dropped findings with the parts of the text in which they look again."""
    yielded: set[tuple[str, int, int]] = set()
    for finding in dropped:
        first = bisect_right(kept, finding.start, key=lambda one: one.end)
        last = bisect_left(kept, finding.end, key=lambda one: one.start)
        starts = [kept[first - 1].end if first else 0, *(one.end for one in kept[first:last])]
        ends = [
            *(one.start for one in kept[first:last]),
            kept[last].start if last < len(kept) else size,
        ]
        for start, end in zip(starts, ends, strict=True):
            if start < end and (finding.rule.name, start, end) not in yielded:
                yielded.add((finding.rule.name, start, end))
                yield finding.rule, start, end


class _RedactionPass:
    """Applies rules to the texts of one trace or span within `_TRACE_SECONDS`.

    Attribute values may be nested, and texts may be JSON. `drop` matches names of attributes to
    drop; nested names are joined by dots.
    """

    def __init__(
        self,
        rules: Sequence[RedactionRule],
        drop: re.Pattern[str] | None,
        counts: Counts,
        monotonic: Callable[[], float],
    ) -> None:
        self._rules = rules
        # a value by its name is found where a text is opened, so that its name is not beside it
        self._named = [
            (one, _BY_NAME[one.name]) for one in rules if one.builtin and one.name in _BY_NAME
        ]
        self._drop = drop
        self._counts = counts
        self._monotonic = monotonic
        self._until = monotonic() + _TRACE_SECONDS

    def text(self, text: str, edits: list[_Edits] | None = None) -> str:
        """Raise `RedactionError`, which is counted, if a rule cannot be applied."""
        found = self._search(text, self._rules)
        if not found:
            return text
        kept, dropped = _resolve(found)
        for rule, start, end in _gaps(kept, dropped, len(text)):
            kept += [
                replace(finding, start=start + finding.start, end=start + finding.end)
                for finding in self._search(text[start:end], [rule])
            ]
        kept.sort(key=lambda finding: finding.start)
        parts = []
        done = 0
        for finding in kept:
            parts += [text[done : finding.start], finding.rule.replacement]
            done = finding.end
            self._count("ragmeter_redactions_total", (("rule", finding.rule.name),), 1)
        if edits is not None:
            edits.append([(one.start, one.end, len(one.rule.replacement)) for one in kept])
        return "".join([*parts, text[done:]])

    def _search(self, text: str, rules: Sequence[RedactionRule]) -> list[_Finding]:
        """Return what rules find in a text and in what it shows, by its place in the text."""
        if not rules:
            return []
        found: list[_Finding] = []
        folded = fold_text(text)
        forms = [form for form in (folded, unescape_text(text)) if form is not None]
        # a pattern of the user's may mean the very characters that are folded
        all_forms = forms if folded.text == text else [FoldedText(text), *forms]
        for rule in rules:
            spans: set[tuple[int, int]] = set()
            for form in forms if rule.builtin else all_forms:
                try:
                    if self._monotonic() > self._until:
                        raise RedactionError(rule.name, "timeout")
                    spans.update(form.span(start, end) for start, end in rule.spans(form.text))
                except RedactionError as error:
                    labels = (("rule", error.rule), ("reason", error.reason))
                    self._count("ragmeter_redaction_failures_total", labels, 1)
                    raise
            found += [_Finding(start, end, rule) for start, end in sorted(spans)]
        return found

    def optional(self, text: str | None) -> str | None:
        try:
            return None if text is None else self.text(text)
        except RedactionError:
            return None

    def _count(self, name: str, labels: tuple[tuple[str, str], ...], by: float) -> None:
        self._counts[name, labels] = self._counts.get((name, labels), 0) + by

    def attributes(self, values: Mapping[str, Any], *, names: bool = False) -> dict[str, Any]:
        """Redact values, and with `names` also the names, which then come from users."""
        return {
            str(self.or_hidden(key)) if names else key: self.or_hidden(value, key)
            for key, value in values.items()
            if self._stays(key)
        }

    def event(self, event: SpanEvent) -> None:
        # it must stay recognisable as an event of a convention or of ragmeter while a rule fails
        if not _CONVENTIONAL.fullmatch(event.name):
            event.name = self.or_hidden(event.name)
        event.attributes = self.attributes(event.attributes)

    def or_hidden(self, value: Any, name: str = "") -> Any:
        try:
            return self._value(value, name, 0)
        except RedactionError:
            return HIDDEN

    def _stays(self, name: str) -> bool:
        return self._drop is None or self._drop.match(name) is None

    def _value(self, value: Any, name: str, depth: int) -> Any:
        if (replacement := self._of_named(name, value)) is not None:
            return replacement
        if isinstance(value, str):
            return self.text_or_json(value, name, depth)
        if isinstance(value, bool) or value is None or isinstance(value, float):
            return value
        if isinstance(value, int):
            if abs(value) < _MIN_NUMBER:
                return value
            redacted = self.text(str(value))
            return value if redacted == str(value) else redacted
        if depth >= _MAX_DEPTH:
            return None
        if isinstance(value, dict):
            named = value.get("name", value.get("key"))  # {"name": "DB_PASSWORD", "value": ...}
            return {
                self.text(str(key)): self._value(
                    item,
                    f"{name}.{named if key == 'value' and isinstance(named, str) else key}",
                    depth + 1,
                )
                for key, item in value.items()
                if self._stays(f"{name}.{key}") and self._stays(str(key))
            }
        if isinstance(value, list | tuple):
            return [self._value(item, name, depth + 1) for item in value]
        return self.text(str(value))

    def _of_named(self, name: str, value: Any) -> str | None:
        """Return what replaces a value that only the name of its field tells, None for another."""
        if not self._named or not name or isinstance(value, bool):
            return None
        if not isinstance(value, str | int):
            return None
        field = name.rpartition(".")[2]
        text = str(value)
        for rule, is_named in self._named:
            if is_named(field, text):
                self._count("ragmeter_redactions_total", (("rule", rule.name),), 1)
                return rule.replacement
        return None

    def text_or_json(self, text: str, name: str = "", depth: int = 0) -> str:
        """Redact a text; JSON by its values, so that it stays readable."""
        if not text:
            return text
        if text.lstrip()[:1] in ("{", "[", '"') and depth < _MAX_DEPTH:
            try:
                parsed = from_json(text)
            except ValueError:
                parsed = None
            if isinstance(parsed, dict | list | str):
                value = self._value(parsed, name, depth + 1)
                if value == parsed:
                    return text
                return json.dumps(value, ensure_ascii=False, default=str)
        return self.text(text)


class _TraceRedaction:
    """The redaction of one trace, each field by its own rules."""

    def __init__(
        self,
        trace: Trace,
        settings: _CompiledSettings,
        counts: Counts,
        monotonic: Callable[[], float],
    ) -> None:
        self._trace = trace
        self._passes = {
            name: _RedactionPass(rules, settings.drop, counts, monotonic)
            for name, rules in settings.field_rules.items()
        }
        self._missing = dict(trace.missing)

    def redacted(self) -> Trace:
        trace = self._trace
        edits: list[_Edits] = []
        error = self._passes["error"].optional(trace.error)
        tags = self._passes["tags"].attributes(trace.tags, names=True)
        update: dict[str, Any] = {
            "query": self._field("query", trace.query),
            "answer": self._field("answer", trace.answer, edits if trace.citations else None),
            "history": self._history(trace.history),
            "passages": self._passages(trace.passages),
            "error": error if trace.error is None else error or FAILED,
            "tags": {key: value for key, value in tags.items() if HIDDEN not in (key, value)},
            "reference": self._reference(trace.reference),
        }
        if trace.reference is not None and update["reference"] is None:
            update["tags"][CANARY] = "true"  # a canary without its reference is not traffic either
        if trace.citations:
            update["citations"] = [self._citation(one, edits) for one in trace.citations]
        return trace.model_copy(update={**update, "missing": self._missing})

    def _field(self, name: str, text: str | None, edits: list[_Edits] | None = None) -> str | None:
        try:
            if text is not None and edits is None:
                return self._passes[name].text_or_json(text)
            return None if text is None else self._passes[name].text(text, edits)
        except RedactionError:
            self._missing[name] = FAILED
            return None

    def _citation(self, citation: Citation, edits: Sequence[_Edits]) -> Citation:
        """Return a citation at its new place, whose sources are redacted like passages."""
        moved = _moved(citation, edits) if edits else citation
        if not citation.sources:
            return moved
        known = {passage.id for passage in self._trace.passages or ()}
        sources = []
        for source in citation.sources:
            names = {name: getattr(source, name) for name in ("id", "url", "title", "text")}
            changed = {
                name: text if text in known else self._passes["passages"].optional(text)
                for name, text in names.items()
            }
            sources.append(source.model_copy(update=changed))
        return moved.model_copy(update={"sources": sources})

    def _history(self, history: Sequence[Message] | None) -> list[Message] | None:
        if history is None:
            return None
        turns = []
        for turn in history:
            role, text = (self._passes["history"].optional(item) for item in (turn.role, turn.text))
            turns.append(Message(role=HIDDEN if role is None else role, text=text or ""))
        return turns

    def _passages(self, passages: Sequence[Passage] | None) -> list[Passage] | None:
        if passages is None:
            return None
        redacted = []
        for passage in passages:
            text = self._field("passages", passage.text)
            metadata = passage.metadata
            if metadata is not None:
                metadata = self._passes["passages"].attributes(metadata, names=True)
            redacted.append(passage.model_copy(update={"text": text, "metadata": metadata}))
        return redacted

    def _reference(self, reference: Reference | None) -> Reference | None:
        """Return None if any text fails: a partial reference would misjudge the answer."""
        if reference is None:
            return None
        try:
            values = _map_texts(
                reference.model_dump(exclude={"conflict"}), self._passes["reference"].text
            )
        except RedactionError:
            return None
        return Reference.model_validate({**values, "conflict": reference.conflict})


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {name: _map_texts(item, change) for name, item in value.items()}
    return value


def _moved(citation: Citation, passes: Sequence[_Edits]) -> Citation:
    start, end = citation.start, citation.end
    update = {
        "start": None if start is None else _new_position(start, passes, end=False),
        "end": None if end is None else _new_position(end, passes, end=True),
    }
    return citation.model_copy(update=update)


def _new_position(position: int, passes: Iterable[_Edits], *, end: bool) -> int:
    """Return a position in the redacted text; one within a replacement becomes its edge."""
    for edits in passes:
        shift = 0
        for start, stop, length in edits:
            if position <= start:
                break
            if position < stop:
                position = start + (length if end else 0)
                break
            shift += length - (stop - start)
        position += shift
    return position
