"""What is exported of a score, as the receiver reads it."""

from __future__ import annotations

import asyncio

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from ragmeter import __version__
from ragmeter.core.score import Score, ScoreState
from ragmeter_exporters.otel.results import ResultSelection

from tests.exporters.otel.collector import Collector, plain, serve
from tests.exporters.otel.running import exporting
from tests.exporters.otel.scores import SPAN, TRACE, done, score
from tests.tables import each_row
from tests.waiting import until_async

JUDGED = Score(
    "relevance", "umbrela", ScoreState.SCORED, 2.5, None, 0.05, {"grades": [3, 2]}, "3f2a0c1d9e8b"
)


def exported(*scores: Score, span: bool = True) -> Collector:
    """What a receiver gets of a trace with these scores."""

    async def send() -> Collector:
        async with serve() as found, exporting(found.url) as (exporter, _):
            exporter.put(done(*scores, span=span))
            await until_async(lambda: len(found.records) == len(scores))
            return found

    return asyncio.run(send())


def record(one: Score, *, span: bool = True) -> tuple[LogRecord, Collector]:
    found = exported(one, span=span)
    (only,) = found.records
    return only, found


def test_a_score_is_an_event_in_the_context_of_the_judged_span() -> None:
    only, found = record(JUDGED)
    assert only.event_name == "gen_ai.evaluation.result"
    assert only.time_unix_nano == only.observed_time_unix_nano > 1_790_000_000 * 10**9
    assert (only.trace_id.hex(), only.span_id.hex()) == (TRACE, SPAN)
    assert only.flags == 1  # the judged span was sampled, or nobody had judged it
    about = plain(only.attributes)
    assert len(str(about.pop("log.record.uid"))) == 48
    assert about == {
        "gen_ai.evaluation.name": "relevance",
        "gen_ai.evaluation.score.value": 2.5,
        "gen_ai.evaluation.explanation": '{"grades":[3,2]}',
        "ragmeter.service": "bot",
        "ragmeter.trace_id": "t-1",
        "ragmeter.scorer": "umbrela",
        "ragmeter.state": "scored",
        "ragmeter.fingerprint": "3f2a0c1d9e8b",
        "ragmeter.probability": 0.05,
    }
    resource = plain(found.resources[0].attributes)
    assert resource == {"service.name": "ragmeter", "service.version": __version__}
    assert found.scopes == ["ragmeter"]


def test_a_trace_that_names_no_span_is_named_by_its_own_id() -> None:
    only, _ = record(JUDGED, span=False)
    assert (only.trace_id, only.span_id, only.flags) == (b"", b"", 0)
    assert plain(only.attributes)["ragmeter.trace_id"] == "t-1"


def test_what_is_unscored_has_a_reason_and_no_value() -> None:
    about = plain(record(score(value=None))[0].attributes)
    assert about["error.type"] == about["ragmeter.reason"] == "no_text"
    assert about["ragmeter.state"] == "unscored"
    assert not {"gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label"} & set(about)


@each_row(
    ("metric", "value", "label"),
    [
        ("answered", 1.0, "pass"),
        ("answered", 0.0, "fail"),
        ("answered", 0.5, None),
        ("citation_fabricated", 1.0, "fail"),
        ("citation_fabricated", 0.0, "pass"),
        ("grounding", 1.0, None),
        ("input_tokens", 1.0, None),
        ("precision_at_k:5", 1.0, None),
    ],
)
def test_only_what_says_one_of_two_things_has_a_label(
    metric: str, value: float, label: str | None
) -> None:
    about = plain(record(score(metric, value))[0].attributes)
    assert about.get("gen_ai.evaluation.score.label") == label


def test_the_same_result_has_the_same_uid_and_another_has_another() -> None:
    others = [score("relevance", 2.5), score("answered", 1.0), score("relevance", scorer="umbrela")]
    records = exported(JUDGED, JUDGED, *others).records
    assert len({plain(one.attributes)["log.record.uid"] for one in records}) == 4


def test_text_of_a_trace_cannot_break_a_message() -> None:
    one = score(detail={"worst": "\ud800 half a letter", "more": "\x00'\n€"})
    text = plain(record(one)[0].attributes)["gen_ai.evaluation.explanation"]
    assert "half a letter" in str(text)
    assert "€" in str(text)


SCORES = [
    score("grounding", 0.5),
    score("grounding", 0.6, scorer="hhem"),
    score("precision_at_k:5", 0.4, scorer="umbrela"),
    score("answered", 1.0, scorer="judge"),
    score("relevance", None),
    score("relevance", None, state=ScoreState.NOT_APPLICABLE),
    score("grounding", None, scorer="hhem_fulltext", state=ScoreState.SAMPLED_OUT),
    score("answered", None, scorer="umbrela", state=ScoreState.SHED),
]


def test_every_score_goes_out_and_nothing_that_is_none() -> None:
    """What was sampled out or shed has been judged by nobody."""
    selection = ResultSelection()
    assert [one for one in SCORES if selection.wants(one)] == SCORES[:5]


def explained(one: Score, *, texts: bool) -> str | float | None:
    selection = ResultSelection(texts=texts)
    (attributes,) = selection.attributes(*done(one)[0])
    return attributes.get("gen_ai.evaluation.explanation")


def test_an_explanation_is_bounded_and_stays_here_where_texts_are_not_kept() -> None:
    long = score(detail={"nuggets": ["€" * 1000] * 20})
    assert explained(long, texts=True) == '{"nuggets":["' + "€" * 487 + " … [cut]"
    assert explained(long, texts=False) is None
