from __future__ import annotations

import re

from ragmeter.exporters.families.reference import all_families
from ragmeter.metrics.registry import metric_specs


def test_names_follow_the_conventions() -> None:
    names = [family.name for family in all_families()]
    assert len(set(names)) == len(names)
    for family in all_families():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name)
        assert (family.type == "counter") == family.name.endswith("_total")
        assert family.help.endswith(".")
        assert not family.ours or family.name.startswith(("rag_", "ragmeter_"))
    for spec in metric_specs().values():
        assert spec.gauge in names
