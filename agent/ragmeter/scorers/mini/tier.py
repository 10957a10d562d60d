"""Grounding and relevance by a model of tokens; which words of an answer nothing supports."""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ragmeter.core.score import NoScore
from ragmeter.core.single_flight import SingleFlight
from ragmeter.core.tiers import MetricScorer, ScoringCost
from ragmeter.metrics.answer_text import MAX_ANSWER, AnswerText, parse_answer
from ragmeter.metrics.comparison import compare_texts
from ragmeter.metrics.grounding import (
    grounding_features,
    grounding_probability,
    weigh_contradictions,
)
from ragmeter.metrics.relevance import find_relevance_reason
from ragmeter.metrics.sentences import find_sentence_spans
from ragmeter.metrics.stems import content_stems, idf
from ragmeter.metrics.structured import looks_structured
from ragmeter.metrics.text_index import PassageIndex, QueryText
from ragmeter.metrics.words import tokenize
from ragmeter.reasons import Reason
from ragmeter.scorers.hhem.model import consistency_probability
from ragmeter.scorers.hhem.tier import METRIC, Finding, LocalModelTier, call_model, passage_texts
from ragmeter.scorers.hhem.windowing import TextTooLong
from ragmeter.scorers.hhem.workers import AdmittedTrace, CpuTask, CpuWorkers
from ragmeter.scorers.mini.model import AnswerRows, Calibration, TokenModel, TokenRisk
from ragmeter.trace import Passage, Trace

MAX_SPANS = 10  # in a result, the worst first
_MAX_SPAN_TEXT = 200
# Characters of passages that are searched for the nearest evidence of spans: some 10 ms.
_MAX_EVIDENCE_CHARS = 100_000
SHORT = 20  # words of a short answer: two of three answers in dialogue (BEGIN) have fewer
_SURE = 6e-6  # least distance of the lexical score from 0 and 1, which may come out of rounding
_LETTER = re.compile(r"\w")
_WORD = re.compile(r"\w+")
_WORD_END = re.compile(r"\w+\Z")
_MAX_WORD = 100  # characters by which a token is made whole: some scripts have no spaces
# What may lie between two words of one span.
_GAP = re.compile(r"[\s\"'(),./:;-]{0,3}")
# Of a token of a row in tokens of a pair of HHEM, which take four times the work.
_WINDOW_WEIGHT = 0.25
_CHARS_PER_WEIGHT = 250  # to read and conclude
# Characters of passages: to compare more with the answer would hold Python's lock for a second.
MAX_PASSAGE_CHARS = 250_000
# Results by text that are remembered, of 1 kB at most. Equal questions may get equal answers: where
# the application has a cache, in canaries, and in a file that is read twice.
_MAX_REMEMBERED = 3_000
_RELEVANCE = "relevance"
_PAIR_WEIGHT = 50.0  # of a row with one passage
# Passages of a trace that are graded: a third would narrow intervals less than more traces do.
MAX_GRADED = 2

_Place = tuple[int, int]
T = TypeVar("T")


class TokenTier(LocalModelTier):
    """Scores `grounding`, and `relevance` if the manifest has a rule, by a model of `tokens`.

    It is opened at the first trace. Texts that it has scored lately it does not score again. By
    default there is one thread, so that the tier never takes more than a core.
    """

    def __init__(self, model: TokenModel, workers: CpuWorkers | None = None) -> None:
        name = model.manifest.name
        pairs = [(METRIC, name), *[(_RELEVANCE, name)] * (model.manifest.relevance is not None)]
        super().__init__(workers or CpuWorkers(1), dict.fromkeys(pairs, model.fingerprint))
        self._model = model
        self._flights: SingleFlight[Any] = SingleFlight()
        self._remembered: OrderedDict[bytes, Any] = OrderedDict()  # the latest used last

    def _score_pair(
        self, pair: MetricScorer, turn: AdmittedTrace, trace: Trace, cost: ScoringCost
    ) -> Awaitable[Finding]:
        if pair[0] == _RELEVANCE:
            return self._score_relevance(turn, trace, cost)
        passages = [(passage.id, passage.text) for passage in trace.passages or ()]
        texts = (trace.query, trace.answer, passages)
        return self._score_once(texts, partial(self._score_tokens, turn, trace), cost)

    async def _score_once(
        self, texts: object, score: Callable[[ScoringCost], Awaitable[T]], cost: ScoringCost
    ) -> T:
        key = hashlib.sha256(repr(texts).encode("utf-8", "surrogatepass")).digest()
        finding: T | None = self._remembered.get(key)
        if finding is None:
            finding, _ = await self._flights.run(key, score, cost)
            self._remembered[key] = finding
            if len(self._remembered) > _MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        self._remembered.move_to_end(key)
        return deepcopy(finding)

    async def _score_tokens(self, turn: AdmittedTrace, trace: Trace, cost: ScoringCost) -> Finding:
        texts = passage_texts(trace)
        answer = trace.answer or ""
        if len(answer) > MAX_ANSWER or sum(map(len, texts)) > MAX_PASSAGE_CHARS:
            raise TextTooLong
        if not any(claim.content for claim in parse_answer(answer).claims):
            return NoScore(Reason.NO_CLAIMS, applies=False)
        weight = (sum(map(len, texts)) + len(answer)) / _CHARS_PER_WEIGHT
        read = partial(call_model, self._model.read, trace.query or "", texts, answer)
        (prepared,) = await turn.run([CpuTask(weight, read)], cost)
        while rows := prepared.next_rows():
            weights = [_WINDOW_WEIGHT * (len(chunk.ids) + end - at) for chunk, (at, end) in rows]
            score = partial(call_model, self._model.score_window, prepared)
            tasks = [CpuTask(w, partial(score, *row)) for w, row in zip(weights, rows, strict=True)]
            await turn.run(tasks, cost)
        conclude = partial(conclude_trace, trace, prepared)
        (result,) = await turn.run([CpuTask(weight, conclude)], cost)
        return result

    async def _score_relevance(
        self, turn: AdmittedTrace, trace: Trace, cost: ScoringCost
    ) -> Finding:
        if sum(len(text) for text in passage_texts(trace)) > MAX_PASSAGE_CHARS:
            raise TextTooLong
        query = trace.query or ""
        weights = self._model.manifest.relevance or Calibration()
        (lexical,) = await turn.run([CpuTask(_PAIR_WEIGHT, partial(grade_by_words, trace))], cost)
        if isinstance(lexical, NoScore):
            return lexical
        grades = []
        for passage, grade in draw_passages(trace, lexical):
            call = partial(call_model, self._model.support_query, query, passage.text or "")
            run = partial(turn.run, [CpuTask(_PAIR_WEIGHT, call)])
            (support,) = await self._score_once((query, passage.text), run, cost)
            odds = combine(weights, support, LexicalFacts(grade))
            grades.append((passage.id, 3 * consistency_probability((0.0, odds))))
        detail = {"graded": {name: round(grade, 3) for name, grade in grades}}
        return sum(grade for _, grade in grades) / len(grades), detail


def grade_by_words(trace: Trace) -> list[float | None] | NoScore:
    """Return the lexical grade of each passage, None without text, or why there are none."""
    pages = PassageIndex.read(passage_texts(trace))
    query = QueryText.read(trace.query)
    reason = find_relevance_reason(trace, pages, query)
    return reason or compare_texts(pages, AnswerText(), query).grade_passages()


def draw_passages(trace: Trace, lexical: Sequence[float | None]) -> list[tuple[Passage, float]]:
    """Draw `MAX_GRADED` of the passages with text, each as likely, at every run the same."""
    pairs = zip(trace.passages or (), lexical, strict=True)
    known = [(passage, grade) for passage, grade in pairs if grade is not None]
    rng = random.Random(f"{trace.service} {trace.trace_id}")
    return rng.sample(known, min(MAX_GRADED, len(known)))


def conclude_trace(trace: Trace, prepared: AnswerRows) -> tuple[float, dict[str, Any]]:
    """Return the value of a trace, from 0 to 1, and its detail."""
    manifest = prepared.model.manifest
    risk, tokens = prepared.conclude()
    weights = manifest.calibration
    facts = lexical_facts(trace) if weights.lexical else LexicalFacts()
    value = consistency_probability((0.0, combine(weights, -risk, facts)))
    answer = trace.answer or ""
    texts = passage_texts(trace)
    ids = [passage.id for passage in trace.passages or ()]
    tokens = tokens if value <= manifest.span_value else []
    spans = unsupported_spans(answer, tokens, manifest.span_risk)
    worst = sorted(spans, key=lambda span: -span.risk)[:MAX_SPANS]
    windows = sum(len(chunk.supports) for chunk in prepared.chunks)
    detail: dict[str, Any] = {"model": round(-risk, 3), "windows": windows}
    if weights.lexical:
        detail["lexical"] = round(facts.lexical, 3)
    if spans:
        evidence = EvidenceFinder(texts) if texts else None
        detail["unsupported"] = len(spans)
        detail["unsupported_spans"] = [
            {
                "start": span.start,
                "end": span.end,
                "text": answer[span.start : span.end][:_MAX_SPAN_TEXT],
                "risk": round(span.risk, 2),
                **(evidence.nearest(answer, span, ids) if evidence else {}),
            }
            for span in worst
        ]
    if blank := sum(not text or text.isspace() for text in texts):
        detail["passages_without_text"] = blank
    return value, detail


class LexicalFacts(NamedTuple):
    """What the words of a trace say of its answer; `Calibration` weighs each by its name."""

    lexical: float = 0.0  # log odds of the built-in score
    contradicted: float = 0.0  # log odds, of the built-in score too
    record: float = 0.0
    several: float = 0.0
    short: float = 0.0


def lexical_facts(trace: Trace) -> LexicalFacts:
    """Read the words of a trace."""
    features, claims = grounding_features(trace)
    value = max(_SURE, min(1 - _SURE, grounding_probability(features)))
    contradicted = weigh_contradictions(features.contradictions)
    facts = LexicalFacts(math.log(value / (1 - value)), contradicted)
    texts = [text for text in passage_texts(trace) if text.strip()]
    if any(map(looks_structured, texts)):
        return facts._replace(record=1.0)
    if len(texts) > 1:
        return facts._replace(several=1.0)
    words = sum(len(claim.text.split()) for claim in claims)
    return facts._replace(short=max(0.0, min(1.0, (3 * SHORT - words) / (2 * SHORT))))


def combine(weights: Calibration, model: float, facts: LexicalFacts) -> float:
    """Return the log odds that an answer is grounded."""
    evidence = weights.model * model + weights.lexical * facts.lexical
    evidence -= weights.contradicted * facts.contradicted
    kind = weights.record * facts.record + weights.several * facts.several
    kind += weights.short * facts.short
    text = (1 - facts.record - facts.several - facts.short) * (weights.text_slope - 1)
    slope = weights.record_slope if facts.record else 1 + text
    return evidence * slope + kind + weights.intercept


def unsupported_spans(answer: str, tokens: Sequence[TokenRisk], at: float) -> list[TokenRisk]:
    """Join the tokens of a risk of `at` or more to spans of whole words, in their order."""
    spans: list[TokenRisk] = []
    for token in tokens:
        if token.risk < at:
            continue
        before = _WORD_END.search(answer, max(0, token.start - _MAX_WORD), token.start)
        after = _WORD.match(answer, token.end, token.end + _MAX_WORD)
        start, end = token.start, token.end
        if before and _LETTER.match(answer, start):
            start = before.start()
        if after and _LETTER.match(answer, end - 1):
            end = after.end()
        if spans and (start <= spans[-1].end or _GAP.fullmatch(answer, spans[-1].end, start)):
            last = spans.pop()
            spans.append(TokenRisk(last.start, max(end, last.end), max(token.risk, last.risk)))
        else:
            spans.append(TokenRisk(start, end, token.risk))
    return [span for span in spans if _LETTER.search(answer, span.start, span.end)]


class EvidenceFinder:
    """Finds the sentence of the passages that is nearest to a place in an answer."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._sentences: list[tuple[int, _Place, frozenset[str]]] = []
        budget = _MAX_EVIDENCE_CHARS
        for number, text in enumerate(texts):
            text = text[: max(0, budget)]
            budget -= len(text)
            for start, end in find_sentence_spans(text):
                stems = frozenset(content_stems(tokenize(text[start:end])))
                self._sentences.append((number, (start, end), stems))

    def nearest(self, answer: str, span: TokenRisk, ids: Sequence[str]) -> dict[str, Any]:
        """Return `evidence`: the place and text that share most with the sentence of a span."""
        around = [
            place
            for place in find_sentence_spans(answer)
            if place[0] < span.end > span.start < place[1]
        ]
        start, end = around[0] if around else (span.start, span.end)
        wanted = frozenset(content_stems(tokenize(answer[start:end])))
        best = None
        most = 0.0
        for number, place, stems in self._sentences:
            shared = sum(idf[stem] for stem in sorted(wanted & stems))
            if shared > most:
                best = (number, place)
                most = shared
        if best is None:
            return {}
        number, (start, end) = best
        text = self._texts[number][start:end][:_MAX_SPAN_TEXT]
        return {"evidence": {"passage_id": ids[number], "start": start, "end": end, "text": text}}
