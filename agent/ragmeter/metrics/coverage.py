"""Measure how far passages cover each sentence of an answer: words, positions, copied stretches."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from ragmeter.metrics.answer_text import AnswerSentence

HALF_COVERED = 8  # content stems of half a stretch of passage; a stretch of 16 is a long sentence


@dataclass(slots=True)
class Coverage:
    """Sums over the sentences and lists by sentence; "mass" is a sum of idf."""

    mass: float = 0.0
    matched: float = 0.0  # mass of content stems that a passage has
    in_query: float = 0.0  # mass of content stems that only the query has
    content: int = 0  # distinct content stems of each sentence, counted
    stems: int = 0
    novel: dict[str, float] = field(default_factory=dict)  # stems that neither has, with idf
    novel_count: int = 0  # the same, counted by sentence
    pairs: int = 0  # adjacent stems, and how many of them are copied
    pairs_copied: int = 0
    copied: list[int] = field(default_factory=list)  # the same, by sentence
    density: int = 0  # sum of squares of copied lengths (Grusky et al. 2018); single stems count 1
    copied3: int = 0  # stems in copied stretches of at least three, and of five
    copied5: int = 0
    follows: int = 0  # copied stretches after another one, and those in the passages' order
    in_order: int = 0
    support: list[float] = field(default_factory=list)  # mass share in one stretch of passage
    worst: int = -1  # the sentence of least support, and its mass by half a stretch
    worst_masses: dict[int, float] = field(default_factory=dict)
    by_words: list[float] = field(default_factory=list)  # of sentences of two stems: share matched
    by_place: list[float] = field(default_factory=list)  # and share matched in one stretch
    by_pairs: list[float] = field(default_factory=list)  # of sentences of three: pairs copied


def measure_coverage(
    claims: list[AnswerSentence],
    positions: Mapping[str, list[int]],
    stream: list[str],
    query: Container[str],
) -> Coverage:
    """Compare every sentence with the passages.

    `positions` are those of the sentences' stems in `stream`, the stems of all passages as in
    `PassageIndex`; `query` has the stems that an answer may repeat.
    """
    out = Coverage()
    novel = out.novel
    last_position = -1
    least = 2.0  # more than any support
    get = positions.get
    for index, claim in enumerate(claims):
        stems = claim.stems
        content = claim.content
        matched = in_query = 0.0
        masses: dict[int, float] = {}
        half_mass = masses.get
        for word, rarity in content.items():
            word_positions = get(word)
            if word_positions is None:
                if word in query:
                    in_query += rarity
                else:
                    novel[word] = rarity
                    out.novel_count += 1
                continue
            matched += rarity
            if len(word_positions) == 1:  # often; quicker than the loop
                half = word_positions[0] // HALF_COVERED
                masses[half] = half_mass(half, 0.0) + rarity
                continue
            last = -1
            for position in word_positions:
                half = position // HALF_COVERED
                if half != last:
                    masses[half] = half_mass(half, 0.0) + rarity
                    last = half
        mass = sum(content.values())
        out.mass += mass
        out.matched += matched
        out.in_query += in_query
        count = len(content)
        out.content += count
        support = 1.0
        if mass > 0:
            support = min(1.0, max(stretch_masses(masses)) / mass) if matched else 0.0
        out.support.append(support)
        if support < least:
            least = support
            out.worst = index
            out.worst_masses = masses
        if count >= 2:
            out.by_words.append((matched + in_query) / mass)
            out.by_place.append(support)
        size = len(stems)
        out.stems += size
        copied = 0
        if matched:
            places = list(map(get, stems))
            out.density += size - places.count(None)
            for length, position in _copied(stems, places, stream):
                copied += length - 1
                out.density += length * length - length
                if last_position >= 0:
                    out.follows += 1
                    out.in_order += position >= last_position
                last_position = position
                if length >= 3:
                    out.copied3 += length
                    if length >= 5:
                        out.copied5 += length
        out.copied.append(copied)
        if size > 1:
            out.pairs += size - 1
            out.pairs_copied += copied
            if size > 2:
                out.by_pairs.append(copied / (size - 1))
    return out


def stretch_masses(masses: Mapping[int, float]) -> list[float]:
    """Return the mass of the stretch that begins with each half of `masses`.

    A stretch is two halves; a word in both counts twice, so callers bound it by the whole mass.
    """
    get = masses.get
    return [mass + get(half + 1, 0.0) for half, mass in masses.items()]


def find_best_position(
    masses: Mapping[int, float], claim: AnswerSentence, positions: Mapping[str, list[int]]
) -> int:
    """Return where the stretch with most of a sentence's mass begins in the stream, or -1.

    `masses` has the sentence's mass by half a stretch. Of equal stretches the first one counts that
    has a word of the sentence, in its order.
    """
    stretches = stretch_masses(masses)
    most = max(stretches, default=0.0)
    if not most:
        return -1
    best = [half for half, mass in zip(masses, stretches, strict=True) if mass == most]
    if len(best) > 1:
        for word in claim.content:
            for at in positions.get(word, ()):
                if at // HALF_COVERED in best:
                    return at // HALF_COVERED * HALF_COVERED
    return best[0] * HALF_COVERED


def _copied(
    words: list[str], places: list[list[int] | None], stream: list[str]
) -> list[tuple[int, int]]:
    """Find greedy longest stretches of two or more words in the passages: (length, position).

    `places` has the positions of each word in the stream.
    """
    stretches: list[tuple[int, int]] = []
    i = 0
    last = len(words) - 1
    while i < last:
        starts = places[i]
        if starts is None:
            i += 1
            continue
        if places[i + 1] is None:
            i += 2
            continue
        length = 2
        word = words[i + 1]
        # the stream ends with "", which is in no answer
        if len(starts) == 1:  # as of most words; quicker than a list
            position = starts[0]
            if stream[position + 1] != word:
                i += 1
                continue
            while i + length <= last and stream[position + length] == words[i + length]:
                length += 1
        else:
            alive = [p for p in starts if stream[p + 1] == word]
            if not alive:
                i += 1
                continue
            while i + length <= last:
                word = words[i + length]
                # a position may run past the end only over "", where the stretch has ended already
                longer = [p for p in alive if stream[p + length] == word]
                if not longer:
                    break
                alive = longer
                length += 1
            position = alive[0]
        stretches.append((length, position))
        i += length
    return stretches
