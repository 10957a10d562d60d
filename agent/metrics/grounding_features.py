"""What grounding is judged by: lexical features of an answer against its passages, all linear.

The idea of each feature: an answer that rests on its passages repeats their words, numbers and
names, near to each other and in their order; what it adds is what people find fault with.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass

from agent.metrics.coverage import Coverage, cover
from agent.metrics.evidence import Answer, Pages, Query
from agent.metrics.grounding_sentences import nearly, read_sentences
from agent.metrics.structured import Conflicts, conflicts, read_record
from agent.metrics.words import idf, tokens

__all__ = ["FEATURES", "Reading", "read"]

FEATURES = (
    "uncovered",  # idf share of the answer's content stems that neither passages nor query have
    "uncovered_by_passages",
    "worst_sentence",  # the same for the worst sentence, the two worst, and their mean
    "worst_two",
    "mean_sentence",
    "worst_local",  # idf share not found together in one stretch of passage
    "mean_local",
    "local_spread",
    "novel",  # log count, log idf mass and share of novel stems: additions, counted
    "novel_mass",
    "novel_share",
    "novel_common",
    "bigrams",  # share of adjacent stem pairs that are not copied
    "worst_bigrams",
    "density",  # length-weighted copied stretches (Grusky et al. 2018, extractive density), negated
    "copied5",  # share of content stems in copied stretches of at least five, three; negated
    "copied3",
    "novel_names",
    "novel_names_share",
    "novel_numbers",
    "novel_numbers_share",
    "numbers",
    "names",
    "length",
    "sentences",
    "order",  # share of copied stretches that follow the passages' order
    "hedges_share",
    "hedges",
    "negations_share",
    "structured",
    "query_missing",  # idf share of the query that no passage has; that the answer repeats
    "query_repeated",
    "sentence_length",
    "novel_by_sentence",
    "denied",  # structured passages: flags contradicted, unknowns asserted, hours, agreement
    "unknown",
    "agreed",
    "hours",
    "hours_agreed",
    "novel_forms",  # share of the answer's distinct words, as written, that no passage has
)

_HEDGES = frozenset(
    tokens(
        "may might could typically generally often usually likely possibly probably perhaps tend"
        " tends sometimes various several many including additionally furthermore moreover also"
        " however other"
    )
)
_NEGATIONS = frozenset(
    tokens("not no never without none neither nor unable lack lacks cannot unavailable t")
)
_MARKED = _HEDGES | _NEGATIONS
_NO_CONFLICTS = Conflicts()
COMMON = 5.0  # idf: a novel stem more common than this may be mere wording


@dataclass(slots=True)
class Reading:
    """The features in the order of `FEATURES`, and what explains them."""

    values: list[float]
    sentences: list[list[float]]  # by claim, as `grounding_sentences.FEATURES` says; prose only
    coverage: Coverage
    novel_numbers: list[str]
    novel_names: list[str]


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def read(pages: Pages, answer: Answer, places: Mapping[str, list[int]], query: Query) -> Reading:
    """Features of an answer. `places`: of the stems of the answer and of the query."""
    claims, words, stems = answer.claims, answer.words, query.stems
    known: Container[str] = stems
    if pages.structured:  # a record's words are keys and bare values: prose inflects them
        known = nearly(pages, answer.content.difference(places)).union(stems)
    names = [w for w in answer.names if w not in places and w not in known]
    found = cover(claims, places, pages.stream, known)
    numbers = [
        raw.strip()
        for form, raw in answer.numbers
        if form not in query.numbers and not pages.has_number(form, raw)
    ]
    marked = list(filter(_MARKED.__contains__, words))
    hedges = sum(map(_HEDGES.__contains__, marked))
    negations = len(marked) - hedges
    record = (
        conflicts(read_record(pages.texts), "\n".join([claim.text for claim in claims]))
        if pages.structured
        else _NO_CONFLICTS
    )
    by_words, by_place, by_pairs = sorted(found.by_words), found.by_place, found.by_pairs
    mean_place = sum(by_place) / max(1, len(by_place))
    spread = sum([(v - mean_place) ** 2 for v in by_place]) / max(1, len(by_place))
    content, stem_count, mass = max(1, found.content), max(1, found.stems), found.mass
    novel = found.novel.values()
    asked = [(idf[w], w) for w in stems]
    asked_mass = sum([rarity for rarity, _ in asked])
    repeated = answer.content.intersection(stems)
    forms = new_forms = frozenset(words)
    for passage in pages.passages:
        new_forms = new_forms.difference(passage.forms)
    log = math.log1p
    log_claims, log_novel = log(len(claims)), log(len(novel))
    values = [
        1 - (found.found + found.asked) / mass if mass else 0.0,
        1 - found.found / mass if mass else 0.0,
        1 - by_words[0] if by_words else 0.0,
        1 - sum(by_words[:2]) / len(by_words[:2]) if by_words else 0.0,
        1 - sum(by_words) / len(by_words) if by_words else 0.0,
        1 - min(by_place) if by_place else 0.0,
        1 - mean_place if by_place else 0.0,
        math.sqrt(spread),
        log_novel,
        log(sum(novel)),
        found.novel_count / content,
        sum(map(COMMON.__gt__, novel)) / content,
        1 - found.pairs_copied / max(1, found.pairs),
        1 - min(by_pairs) if by_pairs else 0.0,
        -log(found.density / stem_count),
        -found.copied5 / stem_count,
        -found.copied3 / stem_count,
        log(len(names)),
        len(names) / (len(answer.names) + 2),
        log(len(numbers)),
        len(numbers) / (len(answer.numbers) + 1),
        log(len(answer.numbers)),
        log(len(answer.names)),
        log(len(words)),
        log_claims,
        found.in_order / found.follows if found.follows else 0.5,
        hedges / max(5, len(words)),
        log(hedges),
        negations / max(5, len(words)),
        1.0 if pages.structured else 0.0,
        _share(sum([rarity for rarity, w in asked if w not in places]), asked_mass),
        _share(sum([rarity for rarity, w in asked if w in repeated]), asked_mass),
        len(words) / max(1, len(claims)) / 30,
        log_novel - log_claims,
        log(record.denied),
        log(record.unknown),
        log(record.agreed),
        log(record.hours),
        log(record.hours_agreed),
        len(new_forms) / max(1, len(forms)),
    ]
    # a record is restated in other words and other order: its sentences look alike, good or bad
    sentences = [] if pages.structured else read_sentences(pages, answer, places, stems, found)
    return Reading(values, sentences, found, numbers, names)
