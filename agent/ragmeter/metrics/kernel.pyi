"""The types of the native text kernel."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

class PassageIds:
    @property
    def has_text(self) -> bool: ...

class Lexicon:
    def __init__(
        self,
        tokenize: Callable[[str], list[str]],
        content_stem: Callable[[str], str],
        idf: Mapping[str, float],
        describe: Callable[[str], int],
        numerals: Mapping[str, str],
        hedges: frozenset[str],
        negations: frozenset[str],
        denials: frozenset[str],
        prefix: int,
        limit: int,
    ) -> None: ...
    def read_passage(self, text: str, structured: bool) -> PassageIds: ...
    def is_current(self, ids: PassageIds) -> bool: ...
    def make_room(self) -> None: ...

def thread_lexicon(make: Callable[[], Lexicon]) -> Lexicon: ...

class Comparison:
    def __init__(
        self,
        lexicon: Lexicon,
        passages: list[PassageIds],
        answer: str,
        sentences: list[tuple[int, int]],
        query: list[str],
        structured: bool,
    ) -> None: ...
    @property
    def has_content(self) -> bool: ...
    def __contains__(self, stem: object) -> bool: ...
    def grade_passages(
        self,
        saturation: float,
        length: float,
        low: float,
        span: float,
        weights: tuple[float, float, float, float],
    ) -> list[float | None]: ...
    def extract_features(
        self,
        names: list[str],
        number_count: int,
        novel_numbers: int,
        record: tuple[int, int, int, int, int],
    ) -> tuple[list[float], list[list[float]], list[float], list[str]]: ...
    def find_worst_sentence(self) -> tuple[int, float, int | None]: ...
    def measure_support(
        self, sentence: int, passages: list[int], low: float, span: float, lack: float
    ) -> tuple[dict[int, float], float]: ...

class PiecewiseLine:
    def __init__(
        self, lows: list[float], highs: list[float], slopes: list[float], base: float
    ) -> None: ...

class GroundingModel:
    def __init__(
        self,
        line: PiecewiseLine,
        sentence: PiecewiseLine,
        share: float,
        roots: Sequence[
            tuple[
                int,
                float,
                Collection[tuple[int, float, float, float]],
                Collection[tuple[int, float, float, float]],
            ]
        ],
    ) -> None: ...
    def raw(self, values: list[float], sentences: list[list[float]]) -> float: ...

def find_names(text: str) -> list[tuple[int, str]]: ...
def find_sentence_spans(
    text: str,
    ascii: bool,
    short_sentence: frozenset[str],
    search_abbreviation: Callable[[str], object],
    limit: int,
) -> list[tuple[int, int]]: ...
def read_english(stop_words: Iterable[str], suffixes: Iterable[tuple[str, int]]) -> None: ...

class Found:
    def span(self, group: int = 0) -> tuple[int, int]: ...
    def start(self, group: int = 0) -> int: ...
    def end(self, group: int = 0) -> int: ...
    def group(self) -> str: ...
    def groups(self) -> tuple[Any, ...]: ...
    def __getitem__(self, group: int | str) -> Any: ...

class Pattern:
    def __init__(self, source: str, flags: int = 0) -> None: ...
    def search(self, text: str, start: int = 0, end: int = -1) -> Found | None: ...
    def match(self, text: str, start: int = 0, end: int = -1) -> Found | None: ...
    def finditer(self, text: str, start: int = 0) -> list[Found]: ...
    def sub(self, replace: Callable[[Found], str], text: str) -> str: ...

IGNORE_CASE: int
MULTI_LINE: int
DOT_ALL: int

def read_plain_signs(signs: str) -> None: ...
def judge_plain(text: str) -> int: ...
def find_odd(text: str) -> list[tuple[int, int]]: ...
def find_quantities(text: str) -> list[tuple[int, int, list[tuple[str, ...]]]]: ...
def adopt_notation(
    text: str, passages: Sequence[str], query: str
) -> tuple[list[tuple[int, int, str]], int]: ...
