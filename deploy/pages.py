"""Write the pages and tables of docs/ that are made from the code: settings, metrics, commands,
saved formats, and runbooks.

    python -m deploy.pages [--check]

A page that is made as a whole says so at its top; a table stands between two marks.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import typer
import yaml
from ragmeter.alerts.rule_sets import Runbook, describe_rule, load_runbooks
from ragmeter.alerts.rules import RULE_PROFILES, AlertRule, load_rules
from ragmeter.app.parts import PARTS
from ragmeter.cli.main import SECTIONS, app
from ragmeter.config.loader import render_reference
from ragmeter.core.metric_specs import base_name
from ragmeter.metrics.registry import metric_specs
from ragmeter_exporters.families import all_families
from ragmeter_exporters.rules.rule_file import (
    DRIFT_RULES,
    HEALTH_RULES,
    WINDOW,
    HealthRule,
)

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FORMATS = Path(__file__).parent / "saved_formats.yaml"

SECTION_TITLES = {
    "meaning": "What it means",
    "hurt": "Who is hurt",
    "look": "How to look",
    "causes": "Likely causes",
    "actions": "What to do",
    "resolves": "When it resolves",
}

# A rule of the agent by profile, or one that only Prometheus evaluates.
Rule = tuple[AlertRule, ...] | HealthRule
Rules = Mapping[str, Rule]


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


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


# Commands


def commands_page() -> str:
    """Every command with its arguments and options, from what `--help` shows."""
    root: Any = typer.main.get_command(app)
    parts = [
        "# Commands",
        mark("generated"),
        "What `ragmeter COMMAND --help` says. Settings come from `--config FILE` and the\n"
        "environment ([settings](configuration.md)); results go to stdout, messages to stderr.",
    ]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}")
        for name in names:
            parts += command_parts(root.commands[name], f"ragmeter {name}")
    return "\n\n".join(parts) + "\n"


def command_parts(command: Any, path: str) -> Iterator[str]:
    """Typer has its own copy of click, whose types have no public name."""
    yield f"### {path}"
    yield cleandoc(command.help or "")
    if commands := getattr(command, "commands", None):
        for name, one in commands.items():
            yield from command_parts(one, f"{path} {name}")
        return
    with command.make_context(path, [], resilient_parsing=True) as context:
        yield f"```sh\n{' '.join([path, *command.collect_usage_pieces(context)])}\n```"
        records = [one.get_help_record(context) for one in command.params if one.name != "help"]
    rows = [(f"`{escape(names)}`", escape(text)) for names, text in filter(None, records)]
    if rows:
        yield table(("argument or option", "meaning"), rows)


def escape(text: str) -> str:
    return " ".join(text.replace("|", r"\|").split())


# Names of metrics


def names_tables() -> str:
    """The metrics of quality, then every exported name."""
    rules: dict[str, list[str]] = {}
    for rule in load_rules():
        if rule.metric is not None:
            rules.setdefault(base_name(rule.metric), []).append(describe_rule(rule))
    head = ("metric", "gauge", "tier", "scorers", "range", "better", "meaning", "formula", "needs")
    metrics = [
        (
            *(f"`{spec.name}`", f"`{spec.gauge}`", spec.tier),
            ", ".join(f"`{name}`" for name in spec.scorers),
            *(spec.range, spec.good or "neither"),
            *map(escape, (spec.meaning, spec.formula, spec.needs, spec.source)),
            escape("; ".join(rules.get(spec.name, ()))),
        )
        for spec in metric_specs().values()
    ]
    names = []
    for family in all_families(PARTS):
        labels = [f"`{label}`" for label in family.labels]
        labels += ["segment tags"] if family.segmented else []
        cells = (f"`{family.name}`", family.type, family.unit, ", ".join(labels))
        names.append((*cells, escape(family.help)))
    parts = [
        "### What is measured",
        table((*head, "source", "default rule (balanced)"), metrics),
        "### Every name",
        table(("name", "type", "unit", "labels", "meaning"), names),
    ]
    return "\n\n".join(parts)


# Saved formats


def formats_table() -> str:
    """What is written, by which module, in which version: the number is that of the code."""
    rows = []
    for entry in yaml.safe_load(FORMATS.read_text("utf-8")):
        versions = [version_of(name) for name in entry.get("version", [])]
        rows.append(
            (entry["what"], f"`{entry['where']}`", ", ".join(versions), entry.get("earlier", ""))
        )
    return table(("what", "where", "version", "earlier versions"), rows)


def version_of(name: str) -> str:
    """The value of `module:CONSTANT`, or the text itself where it names no constant."""
    module, colon, constant = name.partition(":")
    value = getattr(import_module(module), constant) if colon else name
    return str(value) if isinstance(value, int) else f"`{value}`"


# Rules and runbooks


def all_rules() -> Rules:
    """Rules by name; one that the agent evaluates in each profile."""
    off = yaml.safe_load((ROOT / "deploy/prometheus/absence.yaml").read_text("utf-8"))
    profiles = [load_rules(profile=profile, brought=[off]) for profile in RULE_PROFILES]
    found: Rules = {rules[0].name: rules for rules in zip(*profiles, strict=True)}
    return {**found, **{rule.name: rule for rule in (*DRIFT_RULES, *HEALTH_RULES)}}


def condition(rule: Rule) -> str:
    """When a rule fires; thresholds differ by profile."""
    if isinstance(rule, HealthRule):
        return f"`{escape(rule.expr.replace(WINDOW, '1h'))}`"
    one = rule[0]
    if one.burn is not None:
        return (
            f"budget used {one.burn.factor:g} times too fast over {one.window}"
            f" and over {one.burn.short}"
        )
    if one.absence:
        return f"no trace over {one.window}"
    thresholds = [f"{each.threshold:g}" for each in rule]
    level = thresholds[0] if len(set(thresholds)) == 1 else " / ".join(thresholds)
    if one.latency is not None:
        what = f"quantile {one.latency.quantile:g} of `{one.latency.stage}`, in seconds,"
    elif one.unscored is not None:
        what = "share of results without a value"
    else:
        what = f"`{one.metric}` ({one.scorer})"
    end = "" if one.statistic == "value" else f"{one.statistic} end of "
    times = f" times that of {one.relative_to}" if one.relative_to else ""
    least = f", from {one.min_samples} samples on" if one.min_samples else ""
    return f"{end}{what} {one.op} {level}{times} over {one.window}{least}"


def lasting(rule: Rule) -> tuple[str, str, str]:
    """Severity, `for` and `keep_firing_for`."""
    one = rule if isinstance(rule, HealthRule) else rule[0]
    keep = one.keep if isinstance(one, HealthRule) else one.keep_firing_for
    severity = f"{one.severity}, off" if one.name == "RagTracesAbsent" else one.severity
    return severity, duration(one.for_), duration(keep)


def duration(seconds: float) -> str:
    size, unit = next(one for one in ((3600, "h"), (60, "min"), (1, "s")) if seconds % one[0] == 0)
    return f"{seconds / size:g} {unit}" if seconds else ""


def runbook_page(runbook: Runbook, rules: Rules) -> str:
    rows = []
    for name in runbook["alerts"]:
        severity, for_, keep = lasting(rules[name])
        rows.append((f"`{name}`", severity, condition(rules[name]), for_, keep))
    parts = [
        f"# {runbook['title']}",
        mark(
            "generated",
            "from agent/ragmeter/alerts/runbooks.yaml and the rules, by `python -m deploy.pages`",
        ),
        table(("alert", "severity", "fires when", "for", "keeps firing for"), rows),
    ]
    for key, title in SECTION_TITLES.items():
        text = runbook[key]  # type: ignore[literal-required]
        if key == "actions":
            text = "\n".join(f"{number}. {indented(item)}" for number, item in enumerate(text, 1))
        elif not isinstance(text, str):
            text = "\n".join(f"- {indented(item)}" for item in text)
        parts += [f"## {title}", text]
    return "\n\n".join(parts) + "\n"


def indented(item: str) -> str:
    return item.replace("\n", "\n  ")


def rules_table(runbooks: Mapping[str, Runbook], rules: Rules) -> str:
    """Every alert with its severity and page."""
    rows = []
    for page, runbook in runbooks.items():
        for name in runbook["alerts"]:
            rule = rules[name]
            severity, for_, _ = lasting(rule)
            when = condition(rule) + (f", for {for_}" if for_ else "")
            if isinstance(rule, HealthRule):
                when = escape(without_templates(rule.summary))
            rows.append((f"`{name}`", severity, when, f"[{runbook['title']}]({page}.md)"))
    return table(("alert", "severity", "fires when", "runbook"), rows)


def without_templates(summary: str) -> str:
    """A summary of Prometheus with `N` for the value and names of labels in capitals."""
    summary = re.sub(r"{{ with .*?{{ end }}", "", summary)
    summary = re.sub(r"{{ \$labels\.(\w+) }}", lambda match: match[1].upper(), summary)
    return re.sub(r"^[A-Z]+: ", "", re.sub(r"{{.*?}}", "N", summary))


def generated() -> dict[Path, str]:
    """Every file that is made here, with what must stand in it."""
    runbooks, rules = load_runbooks(), all_rules()
    metrics, formats = DOCS / "metrics.md", DOCS / "formats.md"
    index = DOCS / "runbooks" / "README.md"
    return {
        DOCS / "configuration.md": render_reference(),
        metrics: replaced(metrics.read_text("utf-8"), "names", names_tables()),
        DOCS / "commands.md": commands_page(),
        formats: replaced(formats.read_text("utf-8"), "formats", formats_table()),
        index: replaced(index.read_text("utf-8"), "rules", rules_table(runbooks, rules)),
        **{
            DOCS / "runbooks" / f"{name}.md": runbook_page(runbook, rules)
            for name, runbook in runbooks.items()
        },
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(arguments).check
    stale = {
        path: text
        for path, text in generated().items()
        if not path.is_file() or path.read_text("utf-8") != text
    }
    for path, text in stale.items():
        sys.stdout.write(f"{path.relative_to(ROOT)}{' is not in step' if check else ''}\n")
        if not check:
            path.write_text(text, "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
