"""Retrieval and citation metrics of a canary, from the locations that hold the right answer.

A support names a document and a heading, not a chunk, so it outlives another way to cut documents.
Formulas are those of helloworld-ai's EVAL.md, with these differences: headings are compared one by
one ("Data" is not the start of "Database"), a passage without a location is unknown and not a miss,
groups that are not given are one group of all supports, and a scope miss is read from the scope,
not guessed from an empty result.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from ragmeter.core.metric_specs import name_at_cutoff
from ragmeter.core.score import NoScore
from ragmeter.metrics.ranking import any_hit, hit_share, reciprocal_rank_at
from ragmeter.reasons import Reason
from ragmeter.trace import Passage, Reference, Support

_MAX_PATH = 2_000  # characters
_MARKERS = re.compile(r"^#{1,6}[ \t]*")  # of a heading's level in Markdown
_NAMES = ("recall_any_at_k", "recall_all_at_k", "precision_at_k", "reciprocal_rank_at_k")
_UNKNOWN_LOCATION = NoScore(Reason.NO_ANCHOR)
_NO_SUPPORTS = NoScore(Reason.NO_SUPPORTS, applies=False)

_SupportMatches = list[list[bool | None]]  # a row by passage, a value by support


def split_headings(text: str) -> list[str]:
    """Split a path like `# Guide > Set-up` into headings, outermost first.

    Levels and extra white space are removed; case counts, as in the source.
    """
    headings = unicodedata.normalize("NFC", text[:_MAX_PATH]).split(">")
    bare = (" ".join(_MARKERS.sub("", heading.strip()).split()) for heading in headings)
    return [heading for heading in bare if heading]


def match_supports(
    passages: Sequence[Passage], supports: Sequence[Support]
) -> list[list[bool | None]]:
    """Match passages with supports.

    In the passage's metadata `rel_path` must be equal and `heading_path` must begin with the
    support's headings; its text must have the snippet, ignoring case and white space.

    Returns:
        A row for each passage, with a value for each support; None if that is unknown.
    """
    locations = [_SupportLocation(support) for support in supports]
    return [
        [location.matches(passage) for location in locations]
        for passage in map(_PassageLocation, passages)
    ]


def any_match(matches: Iterable[bool | None]) -> bool | None:
    """Return whether a match is true; None if that is unknown."""
    values = list(matches)
    if True in values:
        return True
    return None if None in values else False


def retrieval_names(ks: Sequence[int]) -> list[str]:
    """Return the names of the metrics of `retrieval_scores`."""
    return [name_at_cutoff(name, k) for name in _NAMES for k in ks]


def retrieval_scores(
    passages: Sequence[Passage] | None, reference: Reference, ks: Sequence[int]
) -> dict[str, float | NoScore]:
    """Return every metric of `retrieval_names(ks)`.

    precision@k is the share of the first k passages that lie at a support, and needs k passages;
    the reciprocal rank is that of the first such passage among the first k. `passages` are in rank
    order, None if they were not captured.
    """
    supports = reference.supports
    groups = reference.support_groups
    if not supports:
        return dict.fromkeys(retrieval_names(ks), _NO_SUPPORTS)
    if passages is None:
        return dict.fromkeys(retrieval_names(ks), NoScore(Reason.NO_PASSAGES_CAPTURED))
    matches = match_supports(passages, supports)
    hits = _passage_hits(matches)
    formulas: dict[str, Callable[[int], float | NoScore]] = {
        "recall_any_at_k": lambda k: _recall_any(hits, k),
        "recall_all_at_k": lambda k: _recall_all(matches, len(supports), groups, k),
        "precision_at_k": lambda k: hit_share(hits, k),
        # without passages the rank of the first hit is infinite
        "reciprocal_rank_at_k": lambda k: reciprocal_rank_at(hits, k) if hits else 0.0,
    }
    return {name_at_cutoff(name, k): formulas[name](k) for name in _NAMES for k in ks}


def scope_miss(supports: Sequence[Support], scope: Sequence[str] | None) -> float | NoScore:
    """Return 1 if no support lies in the folders that were searched, else 0.

    A folder "" holds all. A scope of None means that everything was searched: not applicable.
    """
    if not supports:
        return _NO_SUPPORTS
    if scope is None:
        return NoScore(Reason.NO_SCOPE, applies=False)
    paths = [_normalise_path(one.rel_path) for one in supports if one.rel_path is not None]
    if not paths:
        return _UNKNOWN_LOCATION
    folders = [_normalise_path(folder).rstrip("/") for folder in scope]
    inside = any(
        not folder or one == folder or one.startswith(f"{folder}/")
        for one in paths
        for folder in folders
    )
    if not inside and len(paths) < len(supports):
        return _UNKNOWN_LOCATION
    return float(not inside)


def attribution_hit(cited: Sequence[Passage], reference: Reference) -> float | NoScore:
    """Return 1 if a passage that the answer cites lies at a support, else 0.

    This applies to questions that can be answered; an answer without citations gets 0.
    """
    if reference.answerable is False:
        return NoScore(Reason.UNANSWERABLE, applies=False)
    if not reference.supports:
        return _NO_SUPPORTS
    if not cited:
        return 0.0
    return any_hit(_passage_hits(match_supports(cited, reference.supports)), len(cited))


def conflict_handled(
    cited: Sequence[Passage], reference: Reference, acknowledged: bool | NoScore
) -> float | NoScore:
    """Return 1 if an answer handles disagreeing supports as the reference asks, else 0.

    `cite_newer`: it cites the latest support, and may cite others. `cite_both`: it cites every
    support. `acknowledge_both`: it also says that they disagree (`acknowledged`).
    """
    if reference.conflict is None:
        return NoScore(Reason.NO_CONFLICT, applies=False)
    supports = reference.supports
    if reference.conflict == "cite_newer":
        dates = [one.updated for one in supports if one.updated is not None]
        if len(dates) < len(supports) or not dates:
            return NoScore(Reason.NO_DATES)
        latest = max(dates)
        newest = [one for one in supports if one.updated == latest]
        return _match_value(any_match(any_match(row) for row in match_supports(cited, newest)))
    if len(supports) < 2:
        return _NO_SUPPORTS
    matches = match_supports(cited, supports)
    is_cited = [_is_retrieved(matches, support) for support in range(len(supports))]
    if False in is_cited or (acknowledged is False and reference.conflict == "acknowledge_both"):
        return 0.0
    if None in is_cited:
        return _UNKNOWN_LOCATION
    if reference.conflict == "acknowledge_both" and isinstance(acknowledged, NoScore):
        return acknowledged
    return 1.0


def _recall_any(hits: Sequence[float | NoScore], k: int) -> float | NoScore:
    return any_hit(hits, k) if hits else 0.0  # without passages the supports were missed


def _recall_all(
    matches: _SupportMatches, number: int, groups: Sequence[Sequence[int]], k: int
) -> float | NoScore:
    retrieved = [_is_retrieved(matches, support, k) for support in range(number)]
    return _match_value(
        any_match(
            _all_true([retrieved[index] for index in group]) for group in groups or [range(number)]
        )
    )


def _match_value(match: bool | None) -> float | NoScore:
    return _UNKNOWN_LOCATION if match is None else float(match)


def _is_retrieved(matches: _SupportMatches, support: int, k: int | None = None) -> bool | None:
    return any_match(row[support] for row in matches[:k])


def _passage_hits(matches: _SupportMatches) -> list[float | NoScore]:
    return [_match_value(any_match(row)) for row in matches]


def _all_true(matches: Sequence[bool | None]) -> bool | None:
    if False in matches:
        return False
    return None if None in matches else True


class _PassageLocation:
    """The location of a passage, parsed once for all supports."""

    __slots__ = ("_folded", "_text", "headings", "path")

    def __init__(self, passage: Passage) -> None:
        path = _metadata(passage, "rel_path")
        headings = _metadata(passage, "heading_path")
        self.path = None if path is None else _normalise_path(path)
        self.headings = None if headings is None else split_headings(headings)
        self._text = passage.text
        self._folded: str | None = None

    @property
    def text(self) -> str | None:
        if self._folded is None and self._text is not None:
            self._folded = _folded(self._text)
        return self._folded


class _SupportLocation:
    """A parsed support; fields that it does not give are None."""

    __slots__ = ("headings", "path", "snippet")

    def __init__(self, support: Support) -> None:
        self.path = None if support.rel_path is None else _normalise_path(support.rel_path)
        self.headings = split_headings(support.heading_path or "") or None
        self.snippet = _folded(support.snippet or "") or None

    def matches(self, passage: _PassageLocation) -> bool | None:
        checks: list[bool | None] = []
        if self.path is not None:
            checks.append(None if passage.path is None else passage.path == self.path)
        if self.headings is not None:
            headings = passage.headings
            size = len(self.headings)
            checks.append(None if headings is None else headings[:size] == self.headings)
        if False in checks:
            return False
        if self.snippet is not None:
            checks.append(None if passage.text is None else self.snippet in passage.text)
        return _all_true(checks) if checks else None


def _metadata(passage: Passage, name: str) -> str | None:
    value = (passage.metadata or {}).get(name)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " > ".join(value)
    return value if isinstance(value, str) else None


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def _normalise_path(text: str) -> str:
    # file systems of macOS decompose Unicode
    return unicodedata.normalize("NFC", text[:_MAX_PATH]).strip().removeprefix("./")
