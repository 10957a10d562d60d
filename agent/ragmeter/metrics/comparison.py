"""Compare the texts of one trace: its passages, its query and the sentences of its answer.

The native kernel does it over integer ids.
"""

from __future__ import annotations

from functools import cache

from ragmeter.metrics import citation_support, grounding_features, kernel, relevance
from ragmeter.metrics.answer_text import NEGATION_STEMS, AnswerSentence, AnswerText
from ragmeter.metrics.english import NEGATIONS
from ragmeter.metrics.grounding_features import AnswerFeatures, WorstSentence
from ragmeter.metrics.stems import idf
from ragmeter.metrics.text_index import RECORD_DENIALS, PassageIndex, QueryText

__all__ = ["Comparison", "compare_texts"]


_MAX_LEXICON = 150_000  # words and stems, some 35 MB; beyond it, a thread's lexicon begins anew


class Comparison:
    """The comparison of one trace.

    Args:
        lexicon: Where words have their numbers. One thread uses it, for one trace at a time: what
            is asked of a comparison is asked before the next one is made.
        pages: The passages.
        answer: The answer, which may have no sentence.
        query: The query, which may have no word.
    """

    def __init__(
        self, lexicon: kernel.Lexicon, pages: PassageIndex, answer: AnswerText, query: QueryText
    ) -> None:
        self._pages = pages
        self._answer = answer
        self._query = query
        lexicon.make_room()
        ids = []
        for passage in pages.passages:
            read = passage.ids
            if read is None or not lexicon.is_current(read):
                read = lexicon.read_passage(passage.text, passage.structured)
                passage.ids = read
            ids.append(read)
        self._texts = kernel.Comparison(lexicon, ids, answer.read, query.words, pages.structured)

    @property
    def has_content(self) -> bool:
        """Whether a sentence of the answer has a content stem."""
        return self._texts.has_content

    def grade_passages(self) -> list[float | None]:
        """Grade each passage from 0 to 3; None if it has no text. The query needs a word."""
        return self._texts.grade_passages(
            relevance.SATURATION,
            relevance.LENGTH,
            relevance.LOW,
            relevance.SPAN,
            (relevance.COVERAGE, relevance.STRETCH, relevance.FREQUENCY, relevance.PAIRS),
        )

    def extract_features(self) -> AnswerFeatures:
        """Compute the features of the answer, which needs a sentence."""
        answer = self._answer
        numbers = grounding_features.find_novel_numbers(
            self._pages, answer, self._query, self._texts
        )
        record = grounding_features.compare_record(self._pages, answer)
        values, sentences, contradictions, names = self._texts.extract_features(
            answer.read.names,
            len(answer.read.numbers),
            len(numbers),
            (record.denied, record.unknown, record.agreed, record.hours, record.hours_agreed),
        )
        index, support, passage = self._texts.find_worst_sentence()
        worst = WorstSentence(index, support, passage) if index >= 0 else None
        return AnswerFeatures(
            values=values,
            sentences=sentences,
            contradictions=contradictions,
            worst=worst,
            novel_numbers=numbers,
            novel_names=names,
            replaced=answer.read.replaced,
        )

    def measure_support(
        self, claim: AnswerSentence, passages: list[int]
    ) -> tuple[dict[int, float], float]:
        """Measure how far passages hold a sentence of the answer, each and all together."""
        return self._texts.measure_support(
            self._answer.claims.index(claim),
            passages,
            citation_support.LOW,
            citation_support.SPAN,
            citation_support.MISSING_NUMBER,
        )


@cache
def _read_vocabulary() -> kernel.Vocabulary:
    return kernel.Vocabulary(
        idf,
        idf.rarest,
        grounding_features.NUMERALS,
        grounding_features.PREFIX,
        counts=grounding_features.COUNTS,
        times=grounding_features.TIMES,
        meta=grounding_features.META_WORDS,
        say=grounding_features.SAY_WORDS,
        text=grounding_features.TEXT_WORDS,
        negations=NEGATION_STEMS,
        hedges=grounding_features.HEDGES,
        negating=NEGATIONS,
        denying=RECORD_DENIALS,
    )


def make_lexicon(limit: int = _MAX_LEXICON) -> kernel.Lexicon:
    """Make an empty lexicon of the kernel, for so many words and stems."""
    return kernel.Lexicon(_read_vocabulary(), limit)


def compare_texts(pages: PassageIndex, answer: AnswerText, query: QueryText) -> Comparison:
    """Compare the texts of a trace by the lexicon of this thread."""
    return Comparison(kernel.thread_lexicon(make_lexicon), pages, answer, query)
