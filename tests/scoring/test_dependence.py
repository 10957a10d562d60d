from __future__ import annotations

import json

import pytest
from ragmeter.kafka.score_records import ScoreRecord, encode_score
from ragmeter.offline.scored_lines import decode_scored_line
from ragmeter.scoring.dependence import cluster_hashes
from ragmeter.scoring.scorer import summarise_trace

from tests.traces import make_trace


def hashes(query: str | None = "How?", **tags: str) -> tuple[str, str]:
    return cluster_hashes(make_trace(1, query=query, tags=tags))


def test_the_nearest_of_session_user_tenant_and_query_makes_the_cluster() -> None:
    session = hashes(session="s", user="u", tenant="t")
    user = hashes(user="u", tenant="t")
    tenant = hashes(tenant="t")
    query = hashes()
    assert len({session[0], user[0], tenant[0], query[0]}) == 4
    assert hashes("Another?", session="s")[0] == session[0]
    # whom the session belongs to does not tell sessions of one tenant apart
    assert session[1] == user[1] == tenant[1] == tenant[0]
    assert hashes(session="s", user="u")[1] == user[0]
    assert hashes(session="s") == (session[0], session[0])
    assert query[0] == query[1] == hashes("  How? ")[0]


def test_a_session_and_a_user_of_the_same_name_are_not_one() -> None:
    assert hashes(session="7") != hashes(user="7")


@pytest.mark.parametrize("query", [None, "", "  "])
def test_a_trace_without_any_of_them_belongs_to_nothing(query: str | None) -> None:
    assert hashes(query) == ("", "")
    assert hashes(query, session="") == ("", "")


def test_other_names_that_senders_use_are_known() -> None:
    assert hashes(session_id="7") == hashes(session="7")
    assert hashes(customer="7") == hashes(tenant_id="7") == hashes(tenant="7")


def test_nothing_of_a_query_can_be_read_from_the_hash() -> None:
    assert len(hashes("my number is 4711")[0]) == 3
    assert hashes("\ud800")[0]


def test_lines_and_records_carry_them_and_a_tenant_only_where_it_is_another() -> None:
    alone = summarise_trace(make_trace(1, tags={"session": "s"}), [])
    apart = summarise_trace(make_trace(1, tags={"session": "s", "tenant": "t"}), [])
    for scored in (alone, apart):
        line = json.dumps(scored.to_dict()).encode()
        assert decode_scored_line(line, 2**20).trace.cluster == scored.cluster
        assert decode_scored_line(line, 2**20).trace.tenant == scored.tenant
    assert "tenant" not in alone.to_dict()
    assert b'"cluster"' in encode_score(ScoreRecord(alone, None))
    assert b'"tenant":"' + alone.cluster.encode() not in encode_score(ScoreRecord(alone, None))
