"""What a canary's supports say of retrieval and citations: pure formulas.

Those of helloworld-ai (see the package). Unlike there, a passage that does not say where it is
from leaves a gap instead of a miss, groups that are not given are one group of all supports, and
whether scope has excluded everything is read from the scope, not guessed from an empty result.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.metrics.canary.anchors import any_of, found_at, path
from agent.metrics.hits import any_hit, reciprocal_rank_at, share
from agent.metrics.names import at
from agent.metrics.results import Gap
from agent.trace import Passage, Reference, Support

__all__ = [
    "attribution_hit",
    "conflict_handled",
    "hits",
    "recall_all",
    "recall_any",
    "retrieval_names",
    "retrieval_scores",
    "scope_miss",
]

Found = list[list[bool | None]]
"""Of each passage, of each support, whether it lies there."""

UNKNOWN = Gap("no_anchor")
NO_SUPPORTS = Gap("no_supports", applies=False)
NAMES = ("recall_any_at_k", "recall_all_at_k", "precision_at_k", "reciprocal_rank_at_k")


def _value(found: bool | None) -> float | Gap:
    return UNKNOWN if found is None else float(found)


def _held(found: Found, support: int, k: int | None = None) -> bool | None:
    """Whether one of the first k passages lies at this place; None where that can't be told."""
    return any_of(row[support] for row in found[:k])


def _hits(found: Found) -> list[float | Gap]:
    return [_value(any_of(row)) for row in found]


def hits(passages: Sequence[Passage], supports: Sequence[Support]) -> list[float | Gap]:
    """Of each passage whether it lies at any of the places: 1, 0, or the gap."""
    return _hits(found_at(passages, supports))


def recall_any(passages: Sequence[Passage], supports: Sequence[Support], k: int) -> float | Gap:
    """recall_any@k: 1 if one of the first k passages lies at any of the places, else 0."""
    if not supports:
        return NO_SUPPORTS
    return _recall_any(_hits(found_at(passages[:k], supports)), k)


def _recall_any(found: Sequence[float | Gap], k: int) -> float | Gap:
    # of nothing: there was something to find
    return any_hit(found, k) if found else 0.0


def recall_all(
    passages: Sequence[Passage],
    supports: Sequence[Support],
    groups: Sequence[Sequence[int]],
    k: int,
) -> float | Gap:
    """recall_all@k, for questions whose answer needs several places: 1 if the first k passages
    hold every place of one of the groups, else 0.

    Groups are alternatives; without any, all supports are needed.
    """
    if not supports:
        return NO_SUPPORTS
    return _recall_all(found_at(passages[:k], supports), len(supports), groups, k)


def _recall_all(found: Found, number: int, groups: Sequence[Sequence[int]], k: int) -> float | Gap:
    held = [_held(found, support, k) for support in range(number)]
    full: list[bool | None] = []
    for group in groups or [range(number)]:
        parts = [held[index] for index in group]
        full.append(False if False in parts else None if None in parts else True)
    if True in full:
        return 1.0
    return UNKNOWN if None in full else 0.0


def retrieval_names(ks: Sequence[int]) -> list[str]:
    """The names of what `retrieval_scores` gives."""
    return [at(name, k) for name in NAMES for k in ks]


def retrieval_scores(
    passages: Sequence[Passage] | None, reference: Reference, ks: Sequence[int]
) -> dict[str, float | Gap]:
    """Every metric of `retrieval_names(ks)`. `passages` in rank order; None: not captured.

    precision@k is the share of the first k that lie at any of the places, and needs k passages;
    the reciprocal rank is that of the first such passage among the first k.
    """
    supports, groups = reference.supports, reference.support_groups
    if not supports:
        return dict.fromkeys(retrieval_names(ks), NO_SUPPORTS)
    if passages is None:
        return dict.fromkeys(retrieval_names(ks), Gap("no_passages_captured"))
    places = found_at(passages, supports)
    found = _hits(places)
    out: dict[str, float | Gap] = {}
    out |= {at("recall_any_at_k", k): _recall_any(found, k) for k in ks}
    out |= {at("recall_all_at_k", k): _recall_all(places, len(supports), groups, k) for k in ks}
    out |= {at("precision_at_k", k): share(found, k) for k in ks}
    # nothing retrieved: the right place was not found, so its rank is infinite
    out |= {
        at("reciprocal_rank_at_k", k): reciprocal_rank_at(found, k) if found else 0.0 for k in ks
    }
    return out


def scope_miss(supports: Sequence[Support], scope: Sequence[str] | None) -> float | Gap:
    """1 if none of the places lies in the folders that were searched, else 0.

    `scope`: those folders; None where everything was searched, so that nothing can be missed. The
    empty path is the folder of all.
    """
    if not supports:
        return NO_SUPPORTS
    if scope is None:
        return Gap("no_scope", applies=False)
    paths = [path(one.rel_path) for one in supports if one.rel_path is not None]
    if not paths:
        return UNKNOWN
    folders = [path(folder).rstrip("/") for folder in scope]
    inside = any(
        not folder or one == folder or one.startswith(f"{folder}/")
        for one in paths
        for folder in folders
    )
    if not inside and len(paths) < len(supports):
        return UNKNOWN
    return float(not inside)


def attribution_hit(cited: Sequence[Passage], reference: Reference) -> float | Gap:
    """1 if a passage that the answer cites lies at any of the places, else 0: an answer that cites
    nothing has attributed nothing. For questions that can be answered."""
    if reference.answerable is False:
        return Gap("unanswerable", applies=False)
    if not reference.supports:
        return NO_SUPPORTS
    if not cited:
        return 0.0
    return any_hit(hits(cited, reference.supports), len(cited))


def conflict_handled(
    cited: Sequence[Passage], reference: Reference, acknowledged: bool | Gap
) -> float | Gap:
    """Whether an answer does what the reference asks where its supports disagree: 1 or 0.

    `cite_newer`: the latest support is cited, the others may be. `cite_both`: every support is.
    `acknowledge_both`: every support is, and the answer says that they disagree (`acknowledged`).
    """
    if reference.conflict is None:
        return Gap("no_conflict", applies=False)
    supports = reference.supports
    if reference.conflict == "cite_newer":
        dates = [one.updated for one in supports if one.updated is not None]
        if len(dates) < len(supports) or not dates:
            return Gap("no_dates")
        latest = max(dates)
        newest = [one for one in supports if one.updated == latest]
        return _value(any_of(any_of(row) for row in found_at(cited, newest)))
    if len(supports) < 2:
        return NO_SUPPORTS
    places = found_at(cited, supports)
    held = [_held(places, support) for support in range(len(supports))]
    if False in held or (acknowledged is False and reference.conflict == "acknowledge_both"):
        return 0.0
    if None in held:
        return UNKNOWN
    if reference.conflict == "acknowledge_both" and isinstance(acknowledged, Gap):
        return acknowledged
    return 1.0
