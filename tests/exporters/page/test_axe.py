"""The pages in a real Chromium under axe-core: nothing serious for people with a screen reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.tools import axe
from tests.exporters.alerts import absent, drifted, make, slow, unscored
from tests.exporters.broken_down import fallen
from tests.exporters.browser import browser
from tests.exporters.fakes import everything
from tests.exporters.incidents import opened, over, refused
from tests.exporters.server import serving
from tests.exporters.test_real_browser import paths, visit
from tests.real import require

pytestmark = pytest.mark.slow

# Rules of taste are left out: what remains are those of WCAG 2.2 AA and what axe takes for best.
RUN = """
return axe.run(document, {resultTypes: ['violations']}).then(found => found.violations
  .filter(one => ['serious', 'critical'].includes(one.impact))
  .map(one => one.id + ': ' + one.nodes.map(node => node.html.slice(0, 200)).join(' | ')))
"""


@pytest.mark.real
@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1400, "light"), (1400, "dark"), (400, "light")],  # colours do not change with the width
)
def test_nothing_serious_is_wrong(width: int, scheme: str, tmp_path: Path) -> None:
    script = axe().read_text(encoding="utf-8")
    chromedriver, chromium = require("chromedriver"), require("chromium", "google-chrome")
    whole = everything()
    # a row of each kind: every number of the page is looked at, and that takes its time
    some = ("grounding", "relevance", "error", "citation_f1", "input_tokens")
    whole.fake.table = {key: value for key, value in whole.fake.table.items() if key[2] in some}
    for agent in (whole, fallen()):
        signals = (make(), slow(), absent(), unscored(), drifted())
        agent.incident_list += [opened(signals=signals), refused(), over(id="1" * 16)]
        service = f"/service/{agent.fake.services()[0]}"
        large = f"{service}/details?range=24h&metric=grounding&scorer=builtin"
        with serving(agent) as port, browser(chromedriver, chromium, tmp_path) as page:
            page.size(width, 900)
            page.scheme(scheme)
            for path in [*paths(agent), large, "/trace?id=nothing"]:
                visit(page, f"http://127.0.0.1:{port}{path}")
                page.run(script)
                assert page.run(RUN) == [], path
