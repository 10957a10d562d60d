"""By what traces that depend on each other are told to belong together.

Requests of one session, user or tenant are alike, and so are repetitions of a query: an interval
that took them for independent ones would be too narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from ragmeter.trace import Trace

# The tags that name whom a trace belongs to, the first that it has. Spans give `session` and
# `user` (`ragmeter.ingest.requests.fields`), senders of native traces what they like.
SESSION_TAGS = ("session", "session_id", "conversation_id", "thread_id")
USER_TAGS = ("user", "user_id")
TENANT_TAGS = ("tenant", "tenant_id", "customer", "customer_id", "org", "org_id", "organization")
_TAGS = frozenset((*SESSION_TAGS, *USER_TAGS, *TENANT_TAGS))

_HASH_DIGITS = 8
# Of a query: a hash without a key of a short text confirms who guesses the text, but so few digits
# have too many others. That unlike queries share them does no harm, because clusters are put into
# far fewer slots.
_QUERY_DIGITS = 3


def cluster_hashes(trace: Trace) -> tuple[str, str]:
    """Return the values of `ScoredTrace.cluster` and `ScoredTrace.tenant`.

    The cluster is the session, else the user, the tenant or the query; the tenant is the tenant,
    else the user or the cluster.
    """
    session = user = tenant = ""
    if not _TAGS.isdisjoint(trace.tags):
        session = _hash_tag(trace, "session", SESSION_TAGS)
        user = _hash_tag(trace, "user", USER_TAGS)
        tenant = _hash_tag(trace, "tenant", TENANT_TAGS)
    cluster = session or user or tenant or _hash_query(trace.query)
    return cluster, tenant or user or cluster


def _hash_tag(trace: Trace, kind: str, names: Sequence[str]) -> str:
    found = next((value for name in names if (value := trace.tags.get(name))), "")
    return _hash_text(f"{kind}:{found}")[:_HASH_DIGITS] if found else ""


def _hash_query(query: str | None) -> str:
    text = (query or "").strip()
    return _hash_text(f"query:{text}")[:_QUERY_DIGITS] if text else ""


def _hash_text(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HASH_DIGITS // 2).hexdigest()
