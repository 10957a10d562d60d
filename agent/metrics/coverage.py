"""Measure how far passages cover each sentence of an answer: words, positions, copied stretches."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from operator import add

from ragmeter.metrics.text_index import AnswerSentence

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
    worst_masses: list[float] = field(default_factory=list)
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
    slots = len(stream) // HALF_COVERED + 2
    last_position = -1
    least = 2.0  # more than any support
    get = positions.get
    novel_count = 0
    for index, claim in enumerate(claims):
        stems, content = claim.stems, claim.content
        matched = in_query = 0.0
        masses = [0.0] * slots
        for word, rarity in content.items():
            word_positions = get(word)
            if word_positions is not None:
                matched += rarity
                if len(word_positions) == 1:  # most words; quicker than the loop
                    masses[word_positions[0] // HALF_COVERED] += rarity
                    continue
                last = -1
                for position in word_positions:
                    half = position // HALF_COVERED
                    if half != last:
                        masses[half] += rarity
                        last = half
            elif word in query:
                in_query += rarity
            else:
                novel[word] = rarity
                novel_count += 1
        mass = sum(content.values())
        out.mass += mass
        out.matched += matched
        out.in_query += in_query
        count = len(content)
        out.content += count
        # a stretch is two halves; a word in both counts twice, hence the bound
        support = 1.0
        if mass > 0:
            support = min(1.0, max(map(add, masses, masses[1:])) / mass) if matched else 0.0
        out.support.append(support)
        if support < least:
            least, out.worst, out.worst_masses = support, index, masses
        if count >= 2:
            out.by_words.append((matched + in_query) / mass)
            out.by_place.append(support)
        size = len(stems)
        out.stems += size
        if not matched:
            out.copied.append(0)
            if size > 1:
                out.pairs += size - 1
                if size > 2:
                    out.by_pairs.append(0.0)
            continue
        copied = 0
        out.density += sum(map(positions.__contains__, stems))
        for length, position in _copied(stems, positions, stream):
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
    out.novel_count = novel_count
    return out


def find_best_position(
    masses: list[float], claim: AnswerSentence, positions: Mapping[str, list[int]]
) -> int:
    """Return where the stretch with most of a sentence's mass begins in the stream, or -1.

    `masses` has the sentence's mass by half a stretch. Of equal stretches the first one counts that
    has a word of the sentence, in its order.
    """
    both = list(map(add, masses, masses[1:]))
    most = max(both, default=0.0)
    if not most:
        return -1
    best = {half for half, mass in enumerate(both) if mass == most and masses[half]}
    if len(best) > 1:
        for word in claim.content:
            for at in positions.get(word, ()):
                if at // HALF_COVERED in best:
                    return at // HALF_COVERED * HALF_COVERED
    return best.pop() * HALF_COVERED


def _copied(
    words: list[str], positions: Mapping[str, list[int]], stream: list[str]
) -> list[tuple[int, int]]:
    """Find greedy longest stretches of two or more words in the passages: (length, position)."""
    stretches: list[tuple[int, int]] = []
    i, last = 0, len(words) - 1
    while i < last:
        starts = positions.get(words[i])
        if starts is None:
            i += 1
            continue
        word = words[i + 1]
        if word not in positions:
            i += 2
            continue
        # the stream ends with "", which is in no answer
        alive = [p for p in starts if stream[p + 1] == word]
        if not alive:
            i += 1
            continue
        length = 2
        while i + length <= last:
            word = words[i + length]
            # a position may run past the end only over "", where the stretch has ended already
            longer = [p for p in alive if stream[p + length] == word]
            if not longer:
                break
            alive = longer
            length += 1
        stretches.append((length, alive[0]))
        i += length
    return stretches
