"""The documents say what is true: fields, links, commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from ragmeter.app.settings import load_settings
from ragmeter.ingest.native import DecodedTrace, decode_trace_body
from ragmeter.reasons import Reason
from ragmeter.trace import MISSING_REASONS, Trace

from deploy.pages import main, replaced
from tests.tables import each_row

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "examples/*.md", "helm/*/*.md")
    for page in sorted(ROOT.glob(pattern))
]


def test_every_field_of_a_trace_is_documented() -> None:
    text = (ROOT / "docs" / "traces.md").read_text()
    assert [name for name in Trace.model_fields if f"`{name}`" not in text] == []


def test_the_example_trace_is_one() -> None:
    text = (ROOT / "docs" / "traces.md").read_text()
    (example,) = [
        block for block in re.findall(r"```json\n(.*?)```", text, re.S) if '"trace_id"' in block
    ]
    (item,) = decode_trace_body(example.encode(), 10_000)
    assert isinstance(item, DecodedTrace)
    assert set(json.loads(example)) <= set(Trace.model_fields)


def test_every_reason_of_a_missing_field_is_documented() -> None:
    text = (ROOT / "docs" / "traces.md").read_text()
    assert [reason for reason in sorted(MISSING_REASONS) if f"`{reason}`" not in text] == []


def anchors(page: Path) -> set[str]:
    """What a repository browser, and the site, make of the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    titles = [
        re.sub(r"[`*]|\]\([^)]*\)|\[", "", one) for one in re.findall(r"^#+ (.*)$", text, re.M)
    ]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@each_row("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    """Sphinx checks those within docs/ too; this one the rest, and without its environment."""
    for link, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", page.read_text()):
        target = page.parent / link if link else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}#{anchor}"


def test_pages_that_are_named_in_texts_exist() -> None:
    """In docstrings, comments, messages and commands, where no link can be checked."""
    missing = set()
    for folder in ("agent", "exporters", "deploy", "helm", "benchmarks", "training", "docs"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix not in (".py", ".yaml", ".md", ".tpl", ".html", ".j2", ".json"):
                continue
            for page in re.findall(
                r"(?<![\w/.-])docs/(?:runbooks/|decisions/)?[\w-]+\.md\b", path.read_text("utf-8")
            ):
                if not (ROOT / page).is_file():
                    missing.add((str(path.relative_to(ROOT)), page))
    assert missing == set()


def test_the_index_has_every_page_once_in_four_groups() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert re.findall(r"^## (.*)$", index, re.M) == [
        "Get started",
        "Operate",
        "Reference",
        "How we know",
    ]
    listed = re.findall(r"^\| \[[^\]]+\]\(([\w/-]+\.md)\)", index, re.M)
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted({*pages, "runbooks/README.md"})


def test_generated_pages_are_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--check"])
    assert (status, capsys.readouterr().out) == (0, ""), "python -m deploy.pages"


def test_a_page_without_the_marks_of_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="names:begin"):
        replaced("# Metrics\n", "names", "| a |")


@pytest.mark.parametrize("name", ["statistics", "agreement", "performance"])
def test_evidence_begins_with_its_conclusion(name: str) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text()
    assert text.partition("\n\n")[2].startswith("**Conclusion.** ")


def test_the_conclusion_on_intervals_quotes_the_table() -> None:
    text = (ROOT / "docs" / "statistics.md").read_text()
    conclusion = " ".join(text.split("\n\n")[1].split())
    _, _, after = text.partition("<!-- acceptance:begin -->")
    coverage: dict[tuple[str, str, str], list[float]] = {}
    for line in re.findall(r"^\| (?!case|---)(.*) \|$", after, re.M):
        case, metric, series, *cells = line.split(" | ")
        kind = "failing" if "fails" in case else "bursts" if "bursts" in case else "usual"
        if series == "builtin":
            continue
        found = [float(cell.split()[0]) for cell in cells[:3] if cell.strip()]
        coverage.setdefault((kind, metric, series), []).extend(found)

    def span(*keys: tuple[str, str, str]) -> str:
        found = [100 * one for key in keys for one in coverage[key]]
        return f"{min(found):.1f} to {max(found):.1f} %"

    rates, means = ("usual", "rates", "judge"), ("usual", "means", "judge")
    assert f"rates hold the truth in {span(rates)} of" in conclusion
    assert f"its means in {span(means)}," in conclusion
    assert span(*(key for key in coverage if key[0] == "bursts")) in conclusion
    failing = min(one for key, found in coverage.items() if key[0] == "failing" for one in found)
    assert f"{100 * failing:.1f} % or more" in conclusion


def test_the_conclusion_on_agreement_quotes_the_table() -> None:
    text = (ROOT / "docs" / "agreement.md").read_text()
    found = [float(one) for one in re.findall(r"\| \*\*(0\.\d+)\*\* \(", text)]
    low, high = (f"{one:.3f}".lstrip("0") for one in (min(found), max(found)))
    assert f"AUROC {low} to {high}" in " ".join(text.split())


def test_the_readme_is_a_landing_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_the_settings_of_the_readme_load(tmp_path: Path) -> None:
    """As written, but for the path of the key, which is the reader's."""
    (key := tmp_path / "key").write_text("k")
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    tree = yaml.safe_load(block)
    tree["judge"]["api_key_file"] = str(key)
    assert load_settings(environ={}, overrides=tree).judge.model == "some-model"


def test_the_readme_names_real_keys() -> None:
    readme = (ROOT / "README.md").read_text()
    reference = (ROOT / "docs" / "configuration.md").read_text()
    for key in re.findall(r"`((?:limits|alerts|state|http)\.[a-z_]+)`", readme):
        assert f"`{key}`" in reference, key


def test_every_reason_is_documented() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    section = text[text.index("\n## Reasons") : text.index("\n## Names")]
    documented = set()
    for row in re.findall(r"^\| (`.*?) \|", section, re.M):
        documented |= set(re.findall(r"`([a-z_]+)`", row))
    assert documented == set(Reason)
