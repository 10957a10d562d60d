"""Lexical features of an answer against its passages, of the whole answer and by sentence.

An answer that rests on its passages repeats their words, numbers and names, near to each other and
in their order; people find fault with what it adds. They fault an answer for one bad sentence, so
sentences have features of their own, fitted on the spans that people marked. All features are
linear in the text.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import compress

from ragmeter.metrics.answer_text import AnswerText
from ragmeter.metrics.coverage import (
    Coverage,
    find_best_position,
    measure_coverage,
    stretch_masses,
)
from ragmeter.metrics.english import ENGLISH, STOP_WORDS
from ragmeter.metrics.stems import idf, stem_word
from ragmeter.metrics.structured import RecordConflicts, find_conflicts, read_record
from ragmeter.metrics.text_index import PassageIndex, QueryText

SENTENCE_FEATURES = (
    "novel_mass",  # idf mass, count and idf share of content stems found nowhere
    "novel",
    "novel_share",
    "length",
    "copied",  # adjacent stems that stand side by side in a passage
    "scattered",  # idf share not found in one stretch of passage
    "place",  # 0 for the first sentence, towards 1 for the last
    "first",
    "novel_names",
    "novel_numbers",
    "strayed_numbers",  # numbers of a passage with other words near them there
    "novel_times",
)
ANSWER_FEATURES = (
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
    "about_passages",  # share of words that say what the passages do not mention
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
CONTRADICTIONS = (
    "refuted_negations",  # log of the negations of what passages rather affirm
    "refuted_in_record",  # the same, of an answer from a record
    "strayed_numbers",  # log of the numbers whose neighbours stay away from them in the passages
    "lost_negations",  # log of the negations of passages whose words a sentence has without one
    "misplaced_numbers",  # log of the numbers beside words that have other numbers beside them
)
_MISSING, _STRAYED = map(SENTENCE_FEATURES.index, ("novel_numbers", "strayed_numbers"))
NEAR = 3  # content stems: within a clause
PREFIX = 5  # letters: "Nigeria" and "Nigerian", "explain" and "explanation" count as one word

# Each negation of an answer meets each window of its passages.
_MAX_NEGATIONS = 40
_MAX_WINDOWS = 400
# Of the idf of a passage's negation, and of all: from here on a sentence restates it.
_RESTATED = 0.3
_LEAST_MASS = 5.0
_HALF_CLAUSE = 4  # content stems of half a stretch that affirms what an answer denies

_DIGITS = {
    stem_word(word): str(number)
    for number, word in enumerate(ENGLISH["digits"].split())
    if word != "one"
}
NUMERALS = _DIGITS | {digits: word for word, digits in _DIGITS.items()}
COUNTS = frozenset(map(stem_word, ENGLISH["counts"].split())).union(_DIGITS)
TIMES = frozenset(stem_word(word) for word in ENGLISH["times"].split() if word not in STOP_WORDS)
META_WORDS = frozenset(map(stem_word, ENGLISH["meta_words"].split()))
SAY_WORDS = META_WORDS.union(map(stem_word, ENGLISH["say_words"].split()))
# Without those that say nothing of a text by themselves: "not based on this".
TEXT_WORDS = META_WORDS.difference(map(stem_word, ("according", "based")))
HEDGES = frozenset(ENGLISH["hedges"].split())
_NO_CONFLICTS = RecordConflicts()
_COMMON = 5.0  # idf: a novel stem more common than this may be mere wording


@dataclass(frozen=True, slots=True)
class WorstSentence:
    """The index of the sentence of least support, that support, and the passage nearest to it."""

    index: int
    support: float
    passage: int | None


@dataclass(slots=True)
class AnswerFeatures:
    """Features of an answer and the observations that explain them."""

    values: list[float]  # in the order of ANSWER_FEATURES
    sentences: list[
        list[float]
    ]  # by sentence, in the order of SENTENCE_FEATURES; empty for records
    contradictions: list[float]  # in the order of CONTRADICTIONS
    worst: WorstSentence | None  # None without sentences
    novel_numbers: list[str]
    novel_names: list[str]
    replaced: int = 0  # values in place of another one of the passages


def extract_features(
    pages: PassageIndex, answer: AnswerText, positions: Mapping[str, list[int]], query: QueryText
) -> AnswerFeatures:
    """Compute the features of an answer; `positions` are positions of its and the query's stems."""
    claims = answer.claims
    words = answer.words
    stems = query.stems
    query_stems: Container[str] = stems
    if pages.structured:  # a record's words are keys and bare values: prose inflects them
        query_stems = _near_matches(pages, answer.content.difference(positions)).union(stems)
    names = [w for w in answer.names if w not in positions and w not in query_stems]
    coverage = measure_coverage(claims, positions, pages.stream, query_stems)
    numbers = find_novel_numbers(pages, answer, query)
    hedges = sum(map(HEDGES.__contains__, words))
    record = compare_record(pages, answer)
    by_words = sorted(coverage.by_words)
    by_place = coverage.by_place
    by_pairs = coverage.by_pairs
    mean_place = sum(by_place) / max(1, len(by_place))
    spread = sum([(v - mean_place) * (v - mean_place) for v in by_place]) / max(1, len(by_place))
    content = max(1, coverage.content)
    stem_count = max(1, coverage.stems)
    mass = coverage.mass
    novel = coverage.novel.values()
    query_rarity = [(idf[w], w) for w in stems]
    query_mass = sum([rarity for rarity, _ in query_rarity])
    forms = set(words)
    new_forms = forms.difference(*[passage.forms for passage in pages.passages])
    log = math.log1p
    refuted, lost, about_passages = _weigh_negations(pages, answer, positions)
    log_claims = log(len(claims))
    log_novel = log(len(novel))
    values = [
        1 - (coverage.matched + coverage.in_query) / mass if mass else 0.0,
        1 - coverage.matched / mass if mass else 0.0,
        1 - by_words[0] if by_words else 0.0,
        1 - sum(by_words[:2]) / len(by_words[:2]) if by_words else 0.0,
        1 - sum(by_words) / len(by_words) if by_words else 0.0,
        1 - min(by_place) if by_place else 0.0,
        1 - mean_place if by_place else 0.0,
        math.sqrt(spread),
        log_novel,
        log(sum(novel)),
        coverage.novel_count / content,
        sum(map(_COMMON.__gt__, novel)) / content,
        1 - coverage.pairs_copied / max(1, coverage.pairs),
        1 - min(by_pairs) if by_pairs else 0.0,
        -log(coverage.density / stem_count),
        -coverage.copied5 / stem_count,
        -coverage.copied3 / stem_count,
        log(len(names)),
        len(names) / (len(answer.names) + 2),
        log(len(numbers)),
        len(numbers) / (len(answer.numbers) + 1),
        log(len(answer.numbers)),
        log(len(answer.names)),
        log(len(words)),
        log_claims,
        coverage.in_order / coverage.follows if coverage.follows else 0.5,
        hedges / max(5, len(words)),
        log(hedges),
        about_passages / max(5, len(words)),
        1.0 if pages.structured else 0.0,
        _share(sum([rarity for rarity, w in query_rarity if w not in positions]), query_mass),
        _share(sum([rarity for rarity, w in query_rarity if w in answer.content]), query_mass),
        len(words) / max(1, len(claims)) / 30,
        log_novel - log_claims,
        log(record.denied),
        log(record.unknown),
        log(record.agreed),
        log(record.hours),
        log(record.hours_agreed),
        len(new_forms) / max(1, len(forms)),
    ]
    figures = {word for word in answer.content if word[0] <= "9"}.union(answer.content & COUNTS)
    # a record is restated in other words and other order: its sentences look alike, good or bad
    sentences = (
        []
        if pages.structured
        else sentence_features(
            pages=pages,
            answer=answer,
            positions=positions,
            query_stems=stems,
            coverage=coverage,
            numbers=figures,
        )
    )
    denials = [0.0, log(refuted)] if pages.structured else [log(refuted), 0.0]
    strayed = sum([row[_MISSING] + row[_STRAYED] for row in sentences])
    misplaced = 0
    if figures:
        misplaced = sum([_misplaced(c.stems, figures, positions, pages.stream) for c in claims])
    contradictions = [*denials, log(strayed), log(lost), log(misplaced)]
    worst = _find_worst(pages, answer, positions, coverage)
    return AnswerFeatures(
        values=values,
        sentences=sentences,
        contradictions=contradictions,
        worst=worst,
        novel_numbers=numbers,
        novel_names=names,
        replaced=answer.replaced,
    )


def find_novel_numbers(pages: PassageIndex, answer: AnswerText, query: QueryText) -> list[str]:
    """Return the numbers of an answer that neither its query nor a passage has, as written."""
    return [
        raw.strip()
        for form, raw in answer.numbers
        if form not in query.numbers and not pages.has_number(form, raw)
    ]


def compare_record(pages: PassageIndex, answer: AnswerText) -> RecordConflicts:
    """Compare an answer with the flags and hours of its structured passages, if there are any."""
    if not pages.structured:
        return _NO_CONFLICTS
    record = read_record([passage.record for passage in pages.passages])
    return find_conflicts(record, "\n".join([claim.text for claim in answer.claims]))


def _find_worst(
    pages: PassageIndex,
    answer: AnswerText,
    positions: Mapping[str, list[int]],
    coverage: Coverage,
) -> WorstSentence | None:
    index = coverage.worst
    if index < 0:
        return None
    position = find_best_position(coverage.worst_masses, answer.claims[index], positions)
    passage = pages.owner[position] if position >= 0 else None
    return WorstSentence(index, coverage.support[index], passage)


def sentence_features(
    pages: PassageIndex,
    answer: AnswerText,
    positions: Mapping[str, list[int]],
    query_stems: Container[str],
    coverage: Coverage,
    numbers: Set[str],
) -> list[list[float]]:
    """Compute a row for each sentence, in the order of `SENTENCE_FEATURES`.

    `positions` are positions of the answer's stems, `coverage` is that of the same sentences,
    `numbers` are those of the answer's stems that are numbers.
    """
    claims = answer.claims
    every = answer.content
    novel = {word for word in every.difference(positions, META_WORDS) if word not in query_stems}
    if novel:
        novel -= _near_matches(pages, novel)
    novel_names = novel.intersection(answer.names)
    novel_times = novel & TIMES
    stream = pages.stream
    log = math.log1p
    size = len(claims)
    rows = []
    for at, (claim, copied, support) in enumerate(zip(claims, coverage.copied, coverage.support)):  # noqa: B905
        stems = claim.stems
        content = claim.content
        # in the order of the text, so that the same answer always gives the same digits
        new = list(filter(novel.__contains__, content)) if novel else ()
        new_mass = mass = 0.0
        name_count = time_count = missing = 0
        strayed = 0.0
        if new:
            mass = sum(content.values())
            new_mass = sum(map(content.__getitem__, new))
            if novel_names:
                name_count = len(novel_names.intersection(new))
            if novel_times:
                time_count = len(novel_times.intersection(new))
        if numbers and not numbers.isdisjoint(content):
            missing, strayed = _numbers(
                stems=stems, numbers=numbers, novel=novel, positions=positions, stream=stream
            )
        rows.append(
            [
                log(new_mass),
                log(len(new)),
                new_mass / mass if mass else 0.0,
                log(len(stems)),
                log(copied),
                1 - support,
                at / size,
                0.0 if at else 1.0,
                float(name_count),
                float(missing),
                strayed,
                float(time_count),
            ]
        )
    return rows


def _weigh_negations(
    pages: PassageIndex, answer: AnswerText, positions: Mapping[str, list[int]]
) -> tuple[float, float, int]:
    """Compare what answer and passages deny; all shares are of idf.

    Returns:
        The sum of the shares of words near the answer's negations that are near none of a passage,
        where one stretch of passage has more of them; the same of passages' negations, the share
        that a sentence has which denies it nowhere; the number of the answer's negations about the
        passages ("the article does not mention"), which need no support.
    """
    windows = [window for passage in pages.passages for window in passage.negated][:_MAX_WINDOWS]
    negations = answer.denied[:_MAX_NEGATIONS]
    content = answer.content
    refuted = 0.0
    lost = 0.0
    about_passages = 0
    for denied, after in negations:
        if not SAY_WORDS.isdisjoint(after) and not TEXT_WORDS.isdisjoint(denied):
            about_passages += 1
        elif denied:
            mass = _mass(denied)
            said = min(mass, _best_stretch(denied, positions))
            if said:
                kept = max([_mass(denied & window) for _, window in windows], default=0.0)
                # a stretch that has a denial of the same words has no more of them than its window
                refuted += (mass - kept) / mass if said > kept else 0.0
    lost_words: list[Set[str]] = []
    # those of a record are flags, which `find_conflicts` compares
    for head, near in () if pages.structured else windows:
        if head not in content or len(near & content) < 2:
            continue
        said_of = [claim.content.keys() & near for claim in answer.claims if head in claim.content]
        shared = max(said_of, key=_mass)
        mass = _mass(shared)
        whole = _mass(near)
        if (
            len(shared) > 1
            and mass >= max(_LEAST_MASS, _RESTATED * whole)
            and all(_mass(shared & denied) < mass / 2 for denied, _ in negations)
            and not any(map(shared.issubset, lost_words))  # windows of one denial overlap
        ):
            lost_words.append(shared)
            lost += mass / whole
    return refuted, lost, about_passages


def _mass(words: Iterable[str]) -> float:
    return math.fsum(map(idf.__getitem__, words))  # the same in any order


def _best_stretch(words: Iterable[str], positions: Mapping[str, list[int]]) -> float:
    """Return most of the idf of words that a stretch of passage has: two halves, as of coverage."""
    masses: dict[int, float] = {}
    for word in sorted(words):
        for half in {at // _HALF_CLAUSE for at in positions.get(word, ())}:
            masses[half] = masses.get(half, 0.0) + idf[word]
    return max(stretch_masses(masses), default=0.0)


def _near_matches(pages: PassageIndex, words: Set[str]) -> set[str]:
    """Return the stems that a passage has in another form, or as a number in words or digits."""
    near = pages.find_relatives(words, PREFIX)
    numerals = NUMERALS.keys() & words
    return near.union([word for word in numerals if NUMERALS[word] in pages.vocabulary])


def _numbers(
    stems: Sequence[str],
    numbers: Container[str],
    novel: Container[str],
    positions: Mapping[str, list[int]],
    stream: Sequence[str],
) -> tuple[int, float]:
    """Count the numbers that no passage has, and sum up how far others stray in the passages.

    A number strays by the share of the stems near it that are not near it in any passage.
    """
    missing = 0
    strayed = 0.0
    wide = 2 * NEAR
    for i, word in enumerate(stems):
        if word not in numbers:
            continue
        if word in novel:
            missing += 1
        elif at := positions.get(word):
            near = {w for w in stems[max(0, i - NEAR) : i + NEAR + 1] if w != word}
            most = 0
            size = len(near)
            for p in at:
                both = len(near.intersection(stream[max(0, p - wide) : p + wide + 1]))
                if both > most:
                    most = both
                    if both == size:
                        break
            strayed += 1 - most / size if size else 0.0
    return missing, strayed


def _misplaced(
    stems: Sequence[str],
    numbers: Set[str],
    positions: Mapping[str, list[int]],
    stream: Sequence[str],
) -> int:
    """Count the numbers whose neighbours never have them beside them in a passage, but others."""
    count = 0
    last = len(stems) - 1
    for i in compress(range(last + 1), map(numbers.__contains__, stems)):
        word = stems[i]
        left = stems[i - 1] if i else ""
        right = stems[i + 1] if i < last else ""
        for at in positions.get(word, ()):
            if stream[at - 1] == left or stream[at + 1] == right:
                break  # as of most numbers
        else:
            beside: set[str] = set()
            if left not in numbers:
                beside.update([stream[at + 1] for at in positions.get(left, ())])
            if right not in numbers:
                beside.update([stream[at - 1] for at in positions.get(right, ())])
            if NUMERALS.get(word) not in beside:
                count += any(other[:1].isdecimal() or other in COUNTS for other in beside)
    return count


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
