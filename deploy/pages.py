"""Write the pages and tables of docs/ that are made from the code: settings, metrics, commands,
saved formats, and runbooks.

    python -m deploy.pages [--check]

A page that is made as a whole says so at its top; a table stands between two marks.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import typer
import yaml
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.app.settings import render_reference
from ragmeter.cli.main import SECTIONS, app
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.collection import document_kinds
from ragmeter.parts.questions.catalogue import QUESTIONS
from ragmeter_exporters.exposition import MetricFamily
from ragmeter_exporters.families import all_families, quality_families
from ragmeter_exporters.page.runbooks import INDEX, escape_cell, markdown_table, runbook_pages

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FORMATS = Path(__file__).parent / "saved_formats.yaml"
REDACTION_CASES = ROOT / "tests" / "core" / "redaction_cases.yaml"

QUESTION_NAME = re.compile(
    rf"rag_(?P<question>{'|'.join(question.name for question in QUESTIONS)})"
    r"_(?P<rest>(?:(?:lower|upper|usual|goal)_)?ratio|change_(?:lower_|upper_)?points)"
)

USUAL_RANGE = "0 to 1"

# prometheus_client exports these, alike from every process in Python.
OF_THE_CLIENT = ("process_", "python_")

RUNBOOK_INDEX = "runbook_index.md of the status page"


def replaced(page: str, name: str, text: str) -> str:
    """The page with the text between the marks `name:begin` and `name:end`.

    They are link definitions that nothing refers to: unlike a comment in HTML they are shown by no
    renderer, the agent's own included.
    """
    begin, end = mark(f"{name}:begin"), mark(f"{name}:end")
    before, first, rest = page.partition(begin)
    _, second, after = rest.partition(end)
    if not first or not second:
        raise ValueError(f"no {begin} … {end} in the page")
    return f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}"


def mark(name: str, text: str = "made by `python -m deploy.pages`") -> str:
    return f"[{name}]: # ({text})"


# Commands


def commands_page() -> str:
    """What every command does; `--help` has its arguments and options."""
    root: Any = typer.main.get_command(app)
    parts = [
        "# Commands",
        mark("generated"),
        "`ragmeter COMMAND --help` shows the arguments and options of each. Settings come\n"
        "from `--config FILE` and the environment ([settings](configuration.md)); results go\n"
        "to stdout, messages to stderr.\n\n"
        "Where a command says nothing else, its exit status is 0 if it did what it says, 2 if\n"
        "what you wrote is mistaken (options, settings, rules or a suite), and 1 otherwise: a\n"
        "file, a model or a topic that these name cannot be used, a service does not answer, or\n"
        "nothing could be read.",
    ]
    for title, names in SECTIONS.items():
        rows = [row for name in names for row in command_rows(root.commands[name], name)]
        parts += [f"## {title}", markdown_table(("`ragmeter` …", "does"), rows)]
    return "\n\n".join(parts) + "\n"


def command_rows(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """Typer has its own copy of click, whose types have no public name."""
    if commands := getattr(command, "commands", None):
        for name, one in commands.items():
            yield from command_rows(one, f"{path} {name}")
        return
    yield f"`{path}`", escape_cell(" ".join(cleandoc(command.help or "").split()))


# Names of metrics


def names_tables() -> str:
    """The metrics of quality, then the questions, the rest of a service, and ragmeter itself."""
    specs = metric_specs().values()
    metrics = [
        (
            f"`{spec.gauge}`",
            ", ".join(f"`{name}`" for name in spec.scorers if name not in twins(spec.scorers)),
            "" if spec.range == USUAL_RANGE else spec.range,
            spec.good or "neither",
            escape_cell(spec.meaning),
            escape_cell(spec.formula),
        )
        for spec in specs
    ]
    quality = {family for spec in specs for family in quality_families(spec)}
    others = sorted(
        (
            family
            for family in all_families(PARTS)
            if family not in quality and not family.name.startswith(OF_THE_CLIENT)
        ),
        key=lambda family: (
            family.name.startswith("ragmeter_"),
            QUESTION_NAME.fullmatch(family.name) is None,
        ),
    )
    parts = [
        "### Metrics of every scorer",
        markdown_table(
            ("gauge", "scorers", f"range, if not {USUAL_RANGE}", "better", "meaning", "formula"),
            metrics,
        ),
        "### Other names",
        markdown_table(("name", "type", "labels", "meaning"), other_names(others)),
    ]
    return "\n\n".join(parts)


def twins(scorers: tuple[str, ...]) -> set[str]:
    """The scorers of judged canaries that stand beside those of the traffic."""
    return {f"canary/{name}" for name in scorers}


def other_names(families: list[MetricFamily]) -> list[tuple[str, str, str, str]]:
    """One row a name; one for all that differ by the question alone, with Q in its place."""
    rows: dict[str, tuple[str, str, str]] = {}
    questions: dict[str, list[str]] = {}
    for family in families:
        name, text = family.name, family.help
        if shared := QUESTION_NAME.fullmatch(name):
            name = f"rag_Q_{shared['rest']}"
            questions.setdefault(name, []).append(f"`{shared['question']}`")
            text = text.replace(f"rag_{shared['question']}_", "rag_Q_")
            if name == "rag_Q_ratio":
                text = "The level of the question; rag_question_source_info tells its source."
        labels = [f"`{label}`" for label in family.labels]
        labels += ["segment tags"] if family.segmented else []
        rows[name] = (family.type, ", ".join(labels), text)
    return [
        (f"`{name}`", kind, labels, escape_cell(f"{text} Q: {', '.join(questions[name])}."))
        if name in questions
        else (f"`{name}`", kind, labels, escape_cell(text))
        for name, (kind, labels, text) in rows.items()
    ]


# Saved formats


def formats_table() -> str:
    """What is written, by which module, in which version: the number is that of the code."""
    rows = []
    for entry in yaml.safe_load(FORMATS.read_text("utf-8")):
        versions = [version_of(name) for name in entry["version"]]
        rows.append(
            (entry["what"], f"`{entry['where']}`", ", ".join(versions), entry.get("another", ""))
        )
    for name, kind in document_kinds(PARTS, AgentSettings()).items():
        rows.append((f"documents of the part {name}", f"`{kind.path}`", f"`{kind.schema}`", ""))
    return markdown_table(("what", "where", "version", "another version"), rows)


def version_of(name: str) -> str:
    """The value of `module:CONSTANT`, or the text itself where it names no constant."""
    module, colon, constant = name.partition(":")
    value = getattr(import_module(module), constant) if colon else name
    return str(value) if isinstance(value, int) else f"`{value}`"


# Redaction


def redaction_table() -> str:
    """What the tests say that the built-in redaction rules leave, by rule."""
    rows = [
        (f"`{rule}`", "; ".join(str(case["form"]) for case in cases if "becomes" not in case))
        for rule, cases in yaml.safe_load(REDACTION_CASES.read_text("utf-8")).items()
    ]
    return markdown_table(("rule", "not recognised"), rows)


# Runbooks


def runbook_file(name: str, text: str) -> str:
    """A runbook as it stands in docs/runbooks: with a mark below its title."""
    title, _, rest = text.partition("\n\n")
    source = RUNBOOK_INDEX if name == INDEX else runbook_source(name)
    made = mark("generated", f"from {source} and the rules, by `python -m deploy.pages`")
    return f"{title}\n\n{made}\n\n{rest}"


def runbook_source(name: str) -> str:
    """The file that holds a runbook: that of the alerts, or of a part."""
    files = sorted((ROOT / "agent").rglob("runbooks.yaml"))
    (found,) = [path for path in files if name in yaml.safe_load(path.read_text("utf-8"))]
    return found.relative_to(ROOT).as_posix()


def generated() -> dict[Path, str]:
    """Every file that is made here, with what must stand in it."""
    metrics, formats = DOCS / "metrics.md", DOCS / "formats.md"
    security = DOCS / "security.md"
    return {
        DOCS / "configuration.md": render_reference(),
        metrics: replaced(metrics.read_text("utf-8"), "names", names_tables()),
        DOCS / "commands.md": commands_page(),
        formats: replaced(formats.read_text("utf-8"), "formats", formats_table()),
        security: replaced(security.read_text("utf-8"), "recognised", redaction_table()),
        **{
            DOCS / "runbooks" / f"{name}.md": runbook_file(name, text)
            for name, text in runbook_pages(PARTS).items()
        },
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(arguments).check
    made = generated()
    stale: dict[Path, str | None] = {
        path: text
        for path, text in made.items()
        if not path.is_file() or path.read_text("utf-8") != text
    }
    # a runbook that is no more
    stale |= dict.fromkeys(set((DOCS / "runbooks").glob("*.md")) - made.keys())
    for path, text in stale.items():
        sys.stdout.write(f"{path.relative_to(ROOT)}{' is not in step' if check else ''}\n")
        if check:
            continue
        if text is None:
            path.unlink()
        else:
            path.write_text(text, "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
