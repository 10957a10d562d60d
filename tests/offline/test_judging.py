"""What `ragmeter score` and `report` say about the judge, and judging again what was kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.cli.test_main import ragmeter
from tests.scorers.judge.stub_judge import StubJudge
from tests.traces import trace_line

SECRET = "sk-" + "no-one-may-read-this"


def with_stub(work: Callable[[Callable[..., CompletedProcess[bytes]]], None], **stub: Any) -> Any:
    """Run `work` with a command that asks a stub; its counts."""

    async def main() -> StubJudge:
        async with StubJudge(**stub) as judge:

            def command(*arguments: str | Path, **env: str) -> CompletedProcess[bytes]:
                settings: dict[str, Any] = {
                    "BASE_URL": judge.base_url,
                    "MODEL": "asked",
                    "API_KEY": SECRET,
                    "INPUT_USD_PER_MILLION": "1",
                    "SECOND__SHARE": "0",
                    **env,
                }
                return ragmeter(
                    *arguments,
                    **{f"RAGMETER_JUDGE__{key}": value for key, value in settings.items()},
                )

            await asyncio.to_thread(work, command)
        return judge

    return asyncio.run(main())


def write_traces(folder: Path, number: int = 5, **changes: Any) -> Path:
    path = folder / "traces.jsonl"
    lines = [trace_line(n, **{"query": f"How do I do {n}?", **changes}) for n in range(number)]
    path.write_bytes(b"\n".join(lines))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def judged(path: Path) -> list[list[tuple[Any, ...]]]:
    names = ("metric", "k", "scorer", "state", "value", "reason", "fingerprint", "detail")
    return [
        [tuple(map(result.get, names)) for result in trace["results"] if is_judged(result)]
        for trace in read(path)
    ]


def is_judged(result: dict[str, Any]) -> bool:
    return result["scorer"] in ("judge", "umbrela", "autonuggetizer")


def test_every_fingerprint_has_a_name_and_every_call_is_counted(tmp_path: Path) -> None:
    traces = write_traces(tmp_path)
    out = tmp_path / "scores.jsonl"
    page = tmp_path / "page.html"
    notified: dict[str, bytes] = {}

    def work(command: Callable[..., CompletedProcess[bytes]]) -> None:
        metrics = "relevance,answered,citations,nuggets,claims"
        notified["score"] = command(
            "score", traces, "-o", out, METRICS=metrics, SECOND__SHARE="1"
        ).stderr
        notified["table"] = command("report", out, "--html", page).stdout
        notified["json"] = command("report", out, "--format", "json").stdout

    stub = with_stub(work)
    scored = read(out)
    uses = [use for trace in scored for use in trace["judging"]["uses"].values()]
    assert sum(use["calls"] for use in uses) == stub.calls
    assert sum(use["input_tokens"] for use in uses) == stub.input_tokens
    assert sum(use["output_tokens"] for use in uses) == stub.output_tokens
    assert sum(use["usd"] for use in uses) == pytest.approx(stub.input_tokens / 1e6)
    for trace in scored:
        names = {
            fingerprint: prompts
            for one in trace["judging"]["instruments"]
            for fingerprint, prompts in one["fingerprints"].items()
        }
        (disagreement,) = [r for r in trace["results"] if r["metric"] == "judge_disagreement"]
        of_results = {r["fingerprint"] for r in trace["results"] if "fingerprint" in r}
        assert of_results.union(disagreement["detail"]["second"]) <= set(names)
        (relevance,) = [
            r for r in trace["results"] if (r["metric"], r["scorer"]) == ("relevance", "umbrela")
        ]
        assert names[relevance["fingerprint"]] == ["umbrela@2"]
        (instrument,) = trace["judging"]["instruments"]
        assert (instrument["model"], instrument["served"]) == ("asked", "stub-1")
        assert instrument["parameters"] == {"temperature": 0, "seed": 42}
    chains = [
        set(prompts)
        for trace in scored
        for one in trace["judging"]["instruments"]
        for prompts in one["fingerprints"].values()
    ]
    assert {"umbrela@2", "nuggets-create@2", "nuggets-assign@2"} in chains  # of `nugget_all`
    report = json.loads(notified["json"])["runs"][0]["judging"]
    assert sum(use["calls"] for use in report["judges"].values()) == stub.calls
    assert report["judges"]["judge"]["latency"]["p95"] > 0
    assert report["seconds"] > 0
    assert set(report["compared"]) >= {"relevance", "groundedness", "claims"}
    number = report["compared"]["relevance"][0]
    assert f"relevance 0 of {number}" in notified["score"].decode().replace("\n", " ")
    for text in (notified["score"], notified["table"], page.read_bytes()):
        assert b"stub-1 (asked for asked)" in b" ".join(text.split())
        assert b"p95" in text.lower()
    assert SECRET not in out.read_text() + page.read_text()


def test_csv_names_the_judge_too(tmp_path: Path) -> None:
    traces = write_traces(tmp_path)
    out = tmp_path / "scores.csv"
    notified: dict[str, bytes] = {}

    def work(command: Callable[..., CompletedProcess[bytes]]) -> None:
        command("score", traces, "-o", out, "--format", "csv", METRICS="relevance")
        notified["json"] = command("report", out, "--format", "json").stdout

    stub = with_stub(work)
    judging = json.loads(notified["json"])["runs"][0]["judging"]
    assert sum(use["calls"] for use in judging["judges"].values()) == stub.calls > 0
    assert {one["served"] for one in judging["instruments"]} == {"stub-1"}


def test_a_judge_that_changes_and_does_not_count(tmp_path: Path) -> None:
    """Another model from the middle on, replies without usage, and questions asked before."""
    traces = write_traces(tmp_path, 24)
    out = tmp_path / "scores.jsonl"
    notified: dict[str, bytes] = {}

    part, again = tmp_path / "part.jsonl", tmp_path / "again.jsonl"

    def work(command: Callable[..., CompletedProcess[bytes]]) -> None:
        notified["score"] = command(
            "score", traces, "-o", out, METRICS="answered", CONCURRENCY="1"
        ).stderr
        part.write_text("\n".join(out.read_text().splitlines()[:6]))
        notified["report"] = command("report", out, "--format", "json").stdout
        notified["part"] = command("report", part, "--format", "json").stdout
        notified["again"] = command(
            "score", traces, "-o", again, METRICS="citations", CONCURRENCY="1"
        ).stderr

    with_stub(work, usage=False, script=["ok"] * 12 + ["lie"] * 12)
    report = json.loads(notified["report"])["runs"][0]["judging"]
    assert [one["traces"] for one in report["instruments"]] == [12, 12]
    assert report["instruments"][0]["served"] == "stub-1"
    assert report["instruments"][1]["served"] != "stub-1"
    assert report["judges"]["judge"]["estimated"] == 24
    assert b"(estimated for 24 calls)" in b" ".join(notified["score"].split())
    some = json.loads(notified["part"])["runs"][0]["judging"]
    assert (some["traces"], some["judges"]["judge"]["calls"]) == (6, 6)
    assert [one["traces"] for one in some["instruments"]] == [6]
    # the answers and passages of all traces are the same, so that each citation is asked for once
    cached = sum(trace["judging"]["uses"]["judge"]["cached"] for trace in read(again))
    assert cached == 23
    assert b"23 answers without a call" in b" ".join(notified["again"].split())


def test_what_was_kept_is_judged_again(tmp_path: Path) -> None:
    traces = write_traces(tmp_path, answer="Mail \ud83d\ude00 a@b.org [1].", tags={"team": "a"})
    config = tmp_path / "ragmeter.yaml"
    config.write_text(
        "privacy: {redact: [{name: mail, pattern: '[a-z]+@b.org', replacement: '<m@b.org>'}]}\n"
    )
    first, kept, again = (tmp_path / name for name in ("first", "kept", "again"))
    done: dict[str, CompletedProcess[bytes]] = {}

    def work(command: Callable[..., CompletedProcess[bytes]]) -> None:
        done["keep"] = command(
            "score", traces, "-o", first, "-c", config, "--keep-judge-inputs", kept
        )
        done["again"] = command("score", "--rejudge", kept, "-o", again, "-c", config)
        done["other"] = command(
            "score", "--rejudge", kept, "-o", tmp_path / "other", "-c", config, MODEL="another"
        )
        done["raw"] = command("score", "--rejudge", traces, "-o", tmp_path / "raw")
        done["plain"] = command("score", kept, "-o", tmp_path / "plain", "-c", config)
        done["csv"] = command("score", "--rejudge", kept, "--format", "csv")

    stub = with_stub(work)
    assert all(done[name].returncode == 0 for name in ("keep", "again", "other", "plain", "csv"))
    # by the judge alone, and not redacted twice: `<m@b.org>` would not stay as it is
    assert judged(again) == judged(first)
    assert all(is_judged(result) for trace in read(again) for result in trace["results"])
    assert read(again)[0]["tags"] == read(first)[0]["tags"]
    assert judged(tmp_path / "plain") != judged(first)
    (one,) = read(tmp_path / "other")[0]["judging"]["instruments"]
    assert one["model"] == "another"
    # what nothing has redacted is not sent
    assert done["raw"].returncode == 1
    assert b"no_judge_input" in done["raw"].stderr
    assert "a@b.org" not in json.dumps(stub.bodies).replace("m@b.org", "")
    content = kept.read_text()
    assert SECRET not in content
    assert "a@b.org" not in content
    header = done["csv"].stdout.decode().splitlines()[0]
    assert "answered.judge" in header
    assert "answered.builtin" not in header


@pytest.mark.parametrize(
    ("arguments", "env", "why"),
    [
        (["--keep-judge-inputs", "kept"], {"RAGMETER_PRIVACY__CONTENT": "none"}, "privacy.content"),
        (["--keep-judge-inputs", "traces.jsonl"], {}, "is what is read"),
        (["--keep-judge-inputs", "out"], {}, "the same file"),
        (["--keep-judge-inputs", "-"], {}, "name of a file"),
        (["--keep-judge-inputs", "kept"], {"RAGMETER_JUDGE__BASE_URL": ""}, "no judge"),
        (["--rejudge"], {"RAGMETER_JUDGE__BASE_URL": ""}, "no judge"),
    ],
)
def test_inputs_that_cannot_be_kept_are_refused(
    tmp_path: Path, arguments: list[str], env: dict[str, str], why: str
) -> None:
    before = write_traces(tmp_path).read_bytes()
    judge = {"RAGMETER_JUDGE__BASE_URL": "http://127.0.0.1:9/v1", "RAGMETER_JUDGE__MODEL": "m"}
    merged: dict[str, Any] = {name: value for name, value in {**judge, **env}.items() if value}
    if "RAGMETER_JUDGE__BASE_URL" not in merged:
        del merged["RAGMETER_JUDGE__MODEL"]
    done = ragmeter("score", "traces.jsonl", "-o", "out", *arguments, cwd=tmp_path, **merged)
    assert done.returncode == 2
    assert why in " ".join(done.stderr.decode().split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["traces.jsonl"]
    assert (tmp_path / "traces.jsonl").read_bytes() == before


def test_settings_without_effect_are_named(tmp_path: Path) -> None:
    traces = write_traces(tmp_path, 1)
    config = tmp_path / "c.yaml"

    def notified(text: str, *command: str | Path) -> str:
        config.write_text(text)
        done = ragmeter(*(command or ("score", traces)), "-c", config)
        assert done.returncode == 0, done.stderr
        return " ".join(done.stderr.decode().split())

    assert "without effect" not in notified("{}")
    assert "without effect" not in notified(
        "judge: {k: [3], second: {share: 0}}\nhttp: {otlp_port: 1}"
    )
    reported = notified(
        "judge: {budget: {requests_per_minute: 5}, temperature: 1}\n"
        "sampling: {judge: 0.5}\nhhem: {workers: 2}"
    )
    assert (
        "without effect in `ragmeter score`: sampling.judge,"
        " judge.budget.requests_per_minute" in reported
    )
    assert "judge.temperature: judge.base_url is not set" in reported
    assert "hhem.workers: hhem.path is not set" in reported
    judge = "base_url: 'http://127.0.0.1:9/v1', model: m, metrics: [facts]"
    state = f"state: {{path: {tmp_path / 'state'}}}"
    replay = ("run", "--replay", traces, "--exit-after-replay")
    reported = notified(f"judge: {{{judge}, second: {{model: n}}}}\n{state}", *replay)
    assert "judge.second.model: nothing of judge.metrics can be compared" in reported
    assert "judge.metrics:" not in reported
