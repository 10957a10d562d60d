"""Settings that change without a restart."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.settings import load_settings
from ragmeter.config.inputs import PrivacySettings
from ragmeter.config.scoring import SamplingSettings
from ragmeter.embedded.commands import SettingsReload


class Taken(list[SamplingSettings]):
    rules: tuple[str, ...] = ()

    def resample(self, settings: SamplingSettings) -> None:
        self.append(settings)

    def redact(self, settings: PrivacySettings) -> None:
        self.rules = tuple(rule.name for rule in settings.redact)


def reload(tmp_path: Path, before: str, after: str) -> tuple[Taken, SettingsReload]:
    path = tmp_path / "c.yaml"
    taken = Taken()
    path.write_text(before)
    found = SettingsReload(
        load_settings(path, environ={}), lambda: load_settings(path, environ={}), taken
    )
    path.write_text(after)
    return taken, found


def test_sampling_follows_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "sampling: {judge: 0.5, model: 0.1}"
    taken, again = reload(tmp_path, "sampling: {judge: 0.1}", text)
    again()
    assert [(one.judge, one.model) for one in taken] == [(0.5, 0.1)]
    again()
    assert len(taken) == 1
    assert "nothing has changed" in caplog.text


@pytest.mark.parametrize("after", ["sampling: {judge: 7}", "sampling: [", "samplign: {}"])
def test_a_mistake_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, after: str
) -> None:
    taken, again = reload(tmp_path, "sampling: {judge: 0.1}", after)
    with caplog.at_level(logging.ERROR):
        again()
    assert taken == []
    assert "the settings stay as they were" in caplog.text


def test_what_needs_a_restart_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    after = "http: {metrics_port: 1}\nsampling: {judge: 0.2}\nwindows: [1h]"
    taken, again = reload(tmp_path, "{}", after)
    again()
    assert len(taken) == 1
    assert "only after a restart: http.metrics_port, windows" in caplog.text
    assert "sampling" not in caplog.text.split("restart:")[1]


@pytest.mark.parametrize(("before", "live"), [("{people: 0}", False), ("{people: 0.1}", True)])
def test_traces_for_people_begin_with_a_restart_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: str, live: bool
) -> None:
    after = "{model: 0.2, people: 0.3, services: {bot: {people: 0.5}}}"
    taken, again = reload(tmp_path, f"sampling: {before}", f"sampling: {after}")
    again()
    assert len(taken) == 1
    (reported, *_) = [one.getMessage() for one in caplog.records if "from now on" in one.message]
    assert ("people" in reported) == live
    assert ("after a restart: sampling.people" in caplog.text) == (not live)


@pytest.mark.parametrize(("before", "after"), [(0, 0.2), (0.2, 0)])
def test_the_local_model_comes_and_goes_with_a_restart_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: float, after: float
) -> None:
    texts = [
        f"sampling: {{judge: {judge}, model: {model}}}"
        for judge, model in ((0.1, before), (0.3, after))
    ]
    taken, again = reload(tmp_path, *texts)
    again()
    assert [(one.judge, one.model) for one in taken] == [(0.3, before)]
    assert "only after a restart: sampling.model" in caplog.text


def test_redaction_follows_the_file_and_a_broken_rule_changes_nothing(tmp_path: Path) -> None:
    taken, again = reload(tmp_path, "{}", "privacy: {redact: [email]}")
    again()
    assert taken.rules == ("email",)
    (tmp_path / "c.yaml").write_text("privacy: {redact: [{name: x, pattern: '('}]}")
    again()
    assert taken.rules == ("email",)


def test_secrets_are_not_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    judge: dict[str, Any] = {"judge": {"api_key": "s3cret"}}
    _, again = reload(tmp_path, "{}", str(judge))
    again()
    assert "judge.api_key" in caplog.text
    assert "s3cret" not in caplog.text
