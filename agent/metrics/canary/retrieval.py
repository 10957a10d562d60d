"""Retrieval and citation metrics of a canary, from the locations that hold the right answer.

Whether a passage is one of the places that hold the right answer.

An anchor is a document and a heading, not a chunk: it outlives another way to cut documents
(helloworld-ai, see the package). Differences: headings are compared one by one, so that
"Data" is not the start of "Database", and what a passage does not say is unknown, not a miss.

What a canary's supports say of retrieval and citations: pure formulas.

Those of helloworld-ai (see the package). Unlike there, a passage that does not say where it is
from leaves a gap instead of a miss, groups that are not given are one group of all supports, and
whether scope has excluded everything is read from the scope, not guessed from an empty result.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from ragmeter.core.metric_specs import name_at_cutoff
from ragmeter.core.score import NoScore
from ragmeter.metrics.ranking import any_hit, hit_share, reciprocal_rank_at
from ragmeter.trace import Passage, Reference, Support

_MAX_PATH = 2_000  # characters of a path that are read
_MARKERS = re.compile(r"^#{1,6}[ \t]*")  # of a heading's level in Markdown


def _normalise_path(text: str) -> str:
    """A path in one form: composed Unicode (file systems of macOS decompose it), no `./`."""
    return unicodedata.normalize("NFC", text[:_MAX_PATH]).strip().removeprefix("./")


def split_headings(text: str) -> list[str]:
    """The headings of a path like `# Guide > Set-up`, outermost first, without level and
    differences of white space; case counts, as in the source."""
    parts = unicodedata.normalize("NFC", text[:_MAX_PATH]).split(">")
    bare = (" ".join(_MARKERS.sub("", part.strip()).split()) for part in parts)
    return [part for part in bare if part]


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


class _PassageLocation:
    """Where a passage is from, read once for all supports that it is held against."""

    __slots__ = ("_folded", "_text", "headings", "path")

    def __init__(self, passage: Passage) -> None:
        theirs = _name_matches(passage, "rel_path")
        self.path = None if theirs is None else _normalise_path(theirs)
        theirs = _name_matches(passage, "heading_path")
        self.headings = None if theirs is None else split_headings(theirs)
        self._text = passage.text
        self._folded: str | None = None

    @property
    def text(self) -> str | None:
        if self._folded is None and self._text is not None:
            self._folded = _folded(self._text)
        return self._folded


class _SupportLocation:
    """A support, read once. What it leaves open is None."""

    __slots__ = ("headings", "path", "snippet")

    def __init__(self, support: Support) -> None:
        self.path = None if support.rel_path is None else _normalise_path(support.rel_path)
        self.headings = split_headings(support.heading_path or "") or None
        self.snippet = _folded(support.snippet or "") or None

    def at(self, place: _PassageLocation) -> bool | None:
        found: list[bool | None] = []
        if self.path is not None:
            found.append(None if place.path is None else place.path == self.path)
        if self.headings is not None:
            theirs, size = place.headings, len(self.headings)
            found.append(None if theirs is None else theirs[:size] == self.headings)
        if False in found:
            return False
        if self.snippet is not None:
            found.append(None if place.text is None else self.snippet in place.text)
        if False in found:
            return False
        return None if None in found or not found else True


def _name_matches(passage: Passage, name: str) -> str | None:
    value = (passage.metadata or {}).get(name)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " > ".join(value)
    return value if isinstance(value, str) else None


def match_supports(
    passages: Sequence[Passage], supports: Sequence[Support]
) -> list[list[bool | None]]:
    """Of each passage, of each support, whether the passage lies there; None where that can't be
    told.

    Of the passage's metadata `rel_path` must be equal, `heading_path` must begin with the
    support's headings, and its text must hold the snippet, whatever the case and white space.
    """
    wanted = [_SupportLocation(support) for support in supports]
    return [[one.at(place) for one in wanted] for place in map(_PassageLocation, passages)]


def any_match(found: Iterable[bool | None]) -> bool | None:
    """Whether one of them is so; None where that can't be told."""
    known = list(found)
    return True if True in known else None if None in known else False


_SupportMatches = list[list[bool | None]]
"""Of each passage, of each support, whether it lies there."""

_UNKNOWN_LOCATION = NoScore("no_anchor")
_NO_SUPPORTS = NoScore("no_supports", applies=False)
_NAMES = ("recall_any_at_k", "recall_all_at_k", "precision_at_k", "reciprocal_rank_at_k")


def _match_value(found: bool | None) -> float | NoScore:
    return _UNKNOWN_LOCATION if found is None else float(found)


def _is_retrieved(found: _SupportMatches, support: int, k: int | None = None) -> bool | None:
    """Whether one of the first k passages lies at this place; None where that can't be told."""
    return any_match(row[support] for row in found[:k])


def _known_hits(found: _SupportMatches) -> list[float | NoScore]:
    return [_match_value(any_match(row)) for row in found]


def _passage_hits(
    passages: Sequence[Passage], supports: Sequence[Support]
) -> list[float | NoScore]:
    """Of each passage whether it lies at any of the places: 1, 0, or the gap."""
    return _known_hits(match_supports(passages, supports))


def recall_any(passages: Sequence[Passage], supports: Sequence[Support], k: int) -> float | NoScore:
    """recall_any@k: 1 if one of the first k passages lies at any of the places, else 0."""
    if not supports:
        return _NO_SUPPORTS
    return _recall_any(_known_hits(match_supports(passages[:k], supports)), k)


def _recall_any(found: Sequence[float | NoScore], k: int) -> float | NoScore:
    # of nothing: there was something to find
    return any_hit(found, k) if found else 0.0


def recall_all(
    passages: Sequence[Passage],
    supports: Sequence[Support],
    groups: Sequence[Sequence[int]],
    k: int,
) -> float | NoScore:
    """recall_all@k, for questions whose answer needs several places: 1 if the first k passages
    hold every place of one of the groups, else 0.

    Groups are alternatives; without any, all supports are needed.
    """
    if not supports:
        return _NO_SUPPORTS
    return _recall_all(match_supports(passages[:k], supports), len(supports), groups, k)


def _recall_all(
    found: _SupportMatches, number: int, groups: Sequence[Sequence[int]], k: int
) -> float | NoScore:
    held = [_is_retrieved(found, support, k) for support in range(number)]
    full: list[bool | None] = []
    for group in groups or [range(number)]:
        parts = [held[index] for index in group]
        full.append(False if False in parts else None if None in parts else True)
    if True in full:
        return 1.0
    return _UNKNOWN_LOCATION if None in full else 0.0


def retrieval_names(ks: Sequence[int]) -> list[str]:
    """The names of what `retrieval_scores` gives."""
    return [name_at_cutoff(name, k) for name in _NAMES for k in ks]


def retrieval_scores(
    passages: Sequence[Passage] | None, reference: Reference, ks: Sequence[int]
) -> dict[str, float | NoScore]:
    """Every metric of `retrieval_names(ks)`. `passages` in rank order; None: not captured.

    precision@k is the share of the first k that lie at any of the places, and needs k passages;
    the reciprocal rank is that of the first such passage among the first k.
    """
    supports, groups = reference.supports, reference.support_groups
    if not supports:
        return dict.fromkeys(retrieval_names(ks), _NO_SUPPORTS)
    if passages is None:
        return dict.fromkeys(retrieval_names(ks), NoScore("no_passages_captured"))
    places = match_supports(passages, supports)
    found = _known_hits(places)
    out: dict[str, float | NoScore] = {}
    out |= {name_at_cutoff("recall_any_at_k", k): _recall_any(found, k) for k in ks}
    out |= {
        name_at_cutoff("recall_all_at_k", k): _recall_all(places, len(supports), groups, k)
        for k in ks
    }
    out |= {name_at_cutoff("precision_at_k", k): hit_share(found, k) for k in ks}
    # nothing retrieved: the right place was not found, so its rank is infinite
    out |= {
        name_at_cutoff("reciprocal_rank_at_k", k): reciprocal_rank_at(found, k) if found else 0.0
        for k in ks
    }
    return out


def scope_miss(supports: Sequence[Support], scope: Sequence[str] | None) -> float | NoScore:
    """1 if none of the places lies in the folders that were searched, else 0.

    `scope`: those folders; None where everything was searched, so that nothing can be missed. The
    empty path is the folder of all.
    """
    if not supports:
        return _NO_SUPPORTS
    if scope is None:
        return NoScore("no_scope", applies=False)
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
    """1 if a passage that the answer cites lies at any of the places, else 0: an answer that cites
    nothing has attributed nothing. For questions that can be answered."""
    if reference.answerable is False:
        return NoScore("unanswerable", applies=False)
    if not reference.supports:
        return _NO_SUPPORTS
    if not cited:
        return 0.0
    return any_hit(_passage_hits(cited, reference.supports), len(cited))


def conflict_handled(
    cited: Sequence[Passage], reference: Reference, acknowledged: bool | NoScore
) -> float | NoScore:
    """Whether an answer does what the reference asks where its supports disagree: 1 or 0.

    `cite_newer`: the latest support is cited, the others may be. `cite_both`: every support is.
    `acknowledge_both`: every support is, and the answer says that they disagree (`acknowledged`).
    """
    if reference.conflict is None:
        return NoScore("no_conflict", applies=False)
    supports = reference.supports
    if reference.conflict == "cite_newer":
        dates = [one.updated for one in supports if one.updated is not None]
        if len(dates) < len(supports) or not dates:
            return NoScore("no_dates")
        latest = max(dates)
        newest = [one for one in supports if one.updated == latest]
        return _match_value(any_match(any_match(row) for row in match_supports(cited, newest)))
    if len(supports) < 2:
        return _NO_SUPPORTS
    places = match_supports(cited, supports)
    held = [_is_retrieved(places, support) for support in range(len(supports))]
    if False in held or (acknowledged is False and reference.conflict == "acknowledge_both"):
        return 0.0
    if None in held:
        return _UNKNOWN_LOCATION
    if reference.conflict == "acknowledge_both" and isinstance(acknowledged, NoScore):
        return acknowledged
    return 1.0
