from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from benchmarks.holds import measure, prepare


def test_all_services_have_the_state_of_one_and_every_hold_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    prepare(path, 12, hours=0.25)
    with sqlite3.connect(path) as db:
        meta = {name: json.loads(value) for name, value in db.execute("SELECT * FROM meta")}
    db.close()
    assert list(meta["drift"]["places"].values()) == [*range(12)]
    assert [meta[f"drift.{n}"]["service"] for n in range(12)] == list(meta["drift"]["places"])
    found = measure(path, 12, 0.5)
    assert found["longest"].keys() == {
        *("commit", "count, rules, drift", "scrape, first part", "scrape, services")
    }
