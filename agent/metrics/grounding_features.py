"""What grounding is judged by: lexical features of an answer against its passages, all linear.

The idea of each feature: an answer that rests on its passages repeats their words, numbers and
names, near to each other and in their order; what it adds is what people find fault with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from agent.metrics.evidence import Answer, Claim, Pages
from agent.metrics.structured import Conflicts, conflicts, read_record
from agent.metrics.words import idf, tokens

__all__ = ["FEATURES", "Reading", "read"]

WINDOW = 16  # content stems of a stretch of passage, a long sentence; stretches overlap by half

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


@dataclass(slots=True)
class Reading:
    """The features in the order of `FEATURES`, and what explains them."""

    values: list[float]
    support: list[float]  # by claim: idf share found together in one stretch of passage, 0..1
    places: list[int]  # by claim: position in the stream of its best stretch, -1 for none
    novel_numbers: list[str]
    novel_names: list[str]


def _bigrams(
    places: Mapping[str, list[int]], stream: list[str]
) -> dict[tuple[str, str], list[int]]:
    """Where two stems of the answer stand side by side in the passages."""
    out: dict[tuple[str, str], list[int]] = {}
    for word, found in places.items():
        for p in found:
            following = stream[p + 1]  # the stream ends with "", which is in no answer
            if following in places:
                pair = (word, following)
                if pair in out:
                    out[pair].append(p)
                else:
                    out[pair] = [p]
    return out


def _copied(
    words: list[str],
    places: Mapping[str, list[int]],
    bigrams: Mapping[tuple[str, str], list[int]],
    stream: list[str],
) -> list[tuple[int, int]]:
    """Greedy longest stretches of `words`, of two or more, in the passages: (length, position)."""
    out: list[tuple[int, int]] = []
    i, n = 0, len(words)
    while i + 1 < n:
        alive = bigrams.get((words[i], words[i + 1]))
        if alive is None:
            i += 1
            continue
        first, length = alive[0], 2
        while i + length < n:
            word = words[i + length]
            # a position may run past the end only over "", where the stretch has ended already
            alive = [p for p in alive if stream[p + length] == word]
            if not alive:
                break
            first = alive[0]
            length += 1
        out.append((length, first))
        i += length
    return out


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def read(
    pages: Pages,
    answer: Answer,
    places: Mapping[str, list[int]],
    query: set[str],
    numbers: set[str],
) -> Reading:
    """Features of an answer. `query`, `numbers`: stems and canonical numbers of the query."""
    claims = answer.claims
    bigrams = _bigrams(places, pages.stream)
    total = covered = covered_or_asked = 0.0
    content_count = novel_count = word_count = stem_count = pair_count = pair_copied = 0
    matched = copied3 = copied5 = 0
    in_order = ordered = hedges = negations = 0
    last = -1
    novel: dict[str, float] = {}
    support: list[float] = []
    best_places: list[int] = []
    sentence_cover: list[float] = []
    sentence_local: list[float] = []
    sentence_pairs: list[float] = []
    half = WINDOW // 2
    for claim in claims:
        words, content = claim.stems, claim.content
        every = claim.words
        mass = got = asked = 0.0
        buckets: dict[int, float] = {}
        for word, rarity in content.items():
            mass += rarity
            if word in places:
                got += rarity
                last_bucket = -1
                for p in places[word]:
                    bucket = p // half
                    if bucket != last_bucket:
                        buckets[bucket] = buckets.get(bucket, 0.0) + rarity
                        last_bucket = bucket
            elif word in query:
                asked += rarity
            else:
                novel[word] = rarity
                novel_count += 1
        total += mass
        covered += got
        covered_or_asked += got + asked
        content_count += len(content)
        best, most = -1, 0.0
        for bucket, value in buckets.items():
            # a stretch is two halves; a word in both counts twice, which the bound forgives
            value += buckets.get(bucket + 1, 0.0)
            if value > most:
                best, most = bucket, value
        local = min(1.0, most / mass) if buckets else 0.0
        support.append(local if mass > 0 else 1.0)
        best_places.append(best * half if buckets else -1)
        if len(content) >= 2:
            sentence_cover.append((got + asked) / mass)
            sentence_local.append(local)
        pairs = 0
        matched += sum(map(places.__contains__, words))
        for length, position in _copied(words, places, bigrams, pages.stream):
            pairs += length - 1
            matched += length * length - length
            if last >= 0:
                ordered += 1
                in_order += position >= last
            last = position
            if length >= 3:
                copied3 += length
                if length >= 5:
                    copied5 += length
        if len(words) > 1:
            pair_count += len(words) - 1
        pair_copied += pairs
        if len(words) > 2:
            sentence_pairs.append(pairs / (len(words) - 1))
        stem_count += len(words)
        word_count += len(every)
        hedges += sum(map(_HEDGES.__contains__, every))
        negations += sum(map(_NEGATIONS.__contains__, every))
    novel_names = [w for w in answer.names if w not in places and w not in query]
    novel_numbers = [
        raw.strip()
        for form, raw in answer.numbers
        if form not in numbers and not pages.has_number(form, raw)
    ]
    name_count, number_count = len(answer.names), len(answer.numbers)
    sentence_cover.sort()
    sentence_local.sort()
    sentence_pairs.sort()
    record = (
        conflicts(read_record(pages.texts), _joined(claims)) if pages.structured else Conflicts()
    )
    n_sentences = max(1, len(claims))
    n_local = max(1, len(sentence_local))
    mean_local = sum(sentence_local) / n_local
    asked_mass = sum(map(idf.__getitem__, query))
    answer_words = set().union(*(claim.content for claim in claims))
    log = math.log1p
    values = [
        1 - _share(covered_or_asked, total) if total else 0.0,
        1 - _share(covered, total) if total else 0.0,
        1 - sentence_cover[0] if sentence_cover else 0.0,
        1 - sum(sentence_cover[:2]) / len(sentence_cover[:2]) if sentence_cover else 0.0,
        1 - sum(sentence_cover) / len(sentence_cover) if sentence_cover else 0.0,
        1 - sentence_local[0] if sentence_local else 0.0,
        1 - mean_local if sentence_local else 0.0,
        math.sqrt(sum((v - mean_local) ** 2 for v in sentence_local) / n_local),
        log(len(novel)),
        log(sum(novel.values())),
        novel_count / max(1, content_count),
        sum(v < 5 for v in novel.values()) / max(1, content_count),
        1 - pair_copied / max(1, pair_count),
        1 - sentence_pairs[0] if sentence_pairs else 0.0,
        -log(matched / max(1, stem_count)),
        -copied5 / max(1, stem_count),
        -copied3 / max(1, stem_count),
        log(len(novel_names)),
        len(novel_names) / (name_count + 2),
        log(len(novel_numbers)),
        len(novel_numbers) / (number_count + 1),
        log(number_count),
        log(name_count),
        log(word_count),
        log(len(claims)),
        in_order / ordered if ordered else 0.5,
        hedges / max(5, word_count),
        log(hedges),
        negations / max(5, word_count),
        1.0 if pages.structured else 0.0,
        _share(sum(idf[w] for w in query if w not in pages.vocabulary), asked_mass),
        _share(sum(idf[w] for w in query if w in answer_words), asked_mass),
        word_count / n_sentences / 30,
        log(len(novel)) - log(len(claims)),
        log(record.denied),
        log(record.unknown),
        log(record.agreed),
        log(record.hours),
        log(record.hours_agreed),
    ]
    return Reading(values, support, best_places, novel_numbers, novel_names)


def _joined(claims: list[Claim]) -> str:
    return "\n".join(claim.text for claim in claims)
