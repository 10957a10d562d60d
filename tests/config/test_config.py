from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.app.parts import AgentSettings
from ragmeter.app.settings import load_settings, render_reference
from ragmeter.config.base import SettingsSection
from ragmeter.config.inputs import PrivacySettings
from ragmeter.config.loader import ConfigError, dump_settings, iter_settings
from ragmeter.config.settings import Settings
from ragmeter.core.redaction_rules import BUILTIN_RULES

from tests.tables import each_row

ROOT = Path(__file__).parents[2]


def error(**changes: object) -> str:
    with pytest.raises(ConfigError) as raised:
        load_settings(**changes)  # type: ignore[arg-type]
    return str(raised.value)


def test_file_then_environment(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("http: {metrics_port: 1, otlp_port: 2}\nsegments: [model]\n")
    settings = load_settings(
        path, {"RAGMETER_HTTP__METRICS_PORT": "3", "RAGMETER_WINDOWS": "5m,1h"}
    )
    assert settings.http.metrics_port == 3
    assert settings.http.otlp_port == 2
    assert settings.segments == ["model"]
    assert settings.windows == ["5m", "1h"]


def test_keys_of_ones_own_hold_what_anchors_name(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "x-endpoint: &endpoint {base_url: http://h/v1, model: m}\n"
        "judge:\n  <<: *endpoint\n  second: {<<: *endpoint, model: n}\n"
    )
    settings = load_settings(path, {})
    assert (settings.judge.model, settings.judge.second.model) == ("m", "n")
    path.write_text("http: {x-own: 1}\n")
    assert "http.x-own: no such setting" in error(path=path, environ={})
    path.write_text("y-own: 1\n")
    assert "keys of your own begin with x-" in error(path=path, environ={})


def test_objects_in_the_environment_are_json() -> None:
    settings = load_settings(environ={"RAGMETER_SAMPLING__SERVICES": '{"bot": {"judge": 0.5}}'})
    assert settings.sampling.services["bot"].judge == 0.5


@each_row(
    ("tree", "words"),
    [
        ({"http": {"metrics_port": 99999}}, ["http.metrics_port", "99999", "65535"]),
        ({"http": {"metric_port": 1}}, ["http.metric_port", "did you mean http.metrics_port"]),
        ({"http": {"port": 1}}, ["did you mean http.otlp_port or http.metrics_port"]),
        ({"http": {"host": "a", "metrics": 1}}, ["did you mean http.metrics_port"]),
        ({"log": {"level": "debug"}}, ["log: no such setting"]),
        (
            {"sampling": {"judge": True}},
            ["sampling.judge: True is not allowed: a number is needed"],
        ),
        ({"http": {"otlp_port": True}}, ["http.otlp_port", "a number is needed"]),
        ({"state": {"path": ""}}, ["state.path: '' is not allowed: a path is needed"]),
        (
            {"judge": {"base_url": "http://h/v1/chat/completions", "model": "m"}},
            ["judge.base_url", "ends before /chat/completions, which is added to it"],
        ),
        ({"windows": ["5x"]}, ["windows", "5x", "from 60s to 90d"]),
        ({"windows": ["30s"]}, ["windows", "30s", "from 60s to 90d"]),
        ({"windows": [60, 3600]}, ["windows", "with its unit: 5m, 1h, 24h"]),
        (
            {"http": {"otlp_port": 9464, "metrics_port": 9464}},
            ["http: otlp_port and metrics_port are the same"],
        ),
        ({"windows": 1}, ["windows: 1 is not allowed: a list is needed"]),
        (
            {"judge": {"concurrency": "x"}},
            ["judge.concurrency: 'x' is not allowed: a whole number is needed"],
        ),
        ({"windows": ["5m", "5m"]}, ["windows", "each name once"]),
        ({"windows": ["1h", "5m", "60m"]}, ["windows", "1h and 60m are one window"]),
        ({"segments": [""]}, ["segments", "name of a tag"]),
        ({"http": {"host": ""}}, ["http.host"]),
        ({"alerts": {"evaluation_seconds": 1e-9}}, ["alerts.evaluation_seconds"]),
        ({"alerts": {"webhook_url": "http://"}}, ["alerts.webhook_url", "with a host"]),
        ({"alerts": {"alertmanager_url": "http://[::"}}, ["alerts.alertmanager_url"]),
        ({"sampling": {"judge": 0}}, ["sampling.judge", "greater than 0"]),
        ({"alerts": {"profile": "bold"}}, ["alerts.profile", "bold", "'balanced'"]),
        ({"alerts": {"webhook_url": "ftp://x"}}, ["alerts.webhook_url", "http://"]),
    ],
)
def test_a_mistake_names_key_value_and_what_is_allowed(
    tree: dict[str, object], words: list[str]
) -> None:
    text = error(environ={}, overrides=tree)
    assert all(word in text for word in words), text


def test_empty_variables_and_those_of_kubernetes_are_nobodys_mistake() -> None:
    environ = {
        "RAGMETER_ALERTS__WEBHOOK_URL": "",
        "RAGMETER_SERVICE_HOST": "10.0.0.1",
        "RAGMETER_SERVICE_PORT_METRICS": "9464",
        "RAGMETER_PORT": "tcp://10.0.0.1:9464",
        "RAGMETER_PORT_9464_TCP_ADDR": "10.0.0.1",
    }
    assert load_settings(environ=environ) == load_settings(environ={})


def test_a_window_may_have_several_units() -> None:
    settings = load_settings(environ={"RAGMETER_WINDOWS": "1d,1h30m,5m"})
    assert settings.windows == ["5m", "1h30m", "1d"]


def test_no_value_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pydantic-settings would log every value where this variable is set."""
    monkeypatch.setenv("PYDANTIC_SETTINGS_DEBUG", "1")
    with caplog.at_level(logging.DEBUG):
        load_settings(environ={"RAGMETER_HTTP__TOKEN": "hush"}, overrides={"segments": ["hush"]})
    assert "hush" not in caplog.text


def test_a_section_whose_lines_are_all_comments_is_none(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("judge:\n  # model: m\nhttp:\nalerts: {}\nsampling:\n  judge: 0.5\n")
    settings = load_settings(path, environ={})
    assert settings.sampling.judge == 0.5
    assert settings.http == load_settings(environ={}).http


def test_a_share_may_be_off() -> None:
    assert load_settings(environ={}, overrides={"sampling": {"model": False}}).sampling.model == 0


@each_row(
    ("name", "value", "words"),
    [
        ("RAGMETER_OTLP__TOOL_NAMES", "['a', 'b']", 'a list is a,b or ["a", "b"]'),
        ("RAGMETER_HTTP__PORT", "1", "RAGMETER_HTTP__OTLP_PORT or RAGMETER_HTTP__METRICS_PORT"),
        ("ragmeter_judge__model", "m", "did you mean RAGMETER_JUDGE__MODEL?"),
        ("RAGMETER_HTTP__OTLP__PORT", "1", "did you mean RAGMETER_HTTP__OTLP_PORT?"),
        ("RAGMETER_HTTP", "{}", "it is a section; set one of its settings, as RAGMETER_HTTP__HOST"),
        ("RAGMETER_HTTP__TLS", "true", "it is a section; set one of its settings"),
        ("RAGMETER_ALERTS__ALERTMANAGER_URL", "http://a:1/api/v2/alerts", "ends before /api/v2"),
        ("RAGMETER_ALERTS__ALERTMANAGER_URL", "http://a:1,http://b:1/#/alerts", "no fragment"),
    ],
)
def test_a_wrong_variable_says_what_is_meant(name: str, value: str, words: str) -> None:
    assert words in error(environ={name: value})


def test_nothing_far_from_a_name_is_offered_for_it() -> None:
    for name in ("RAGMETER_CONFIG", "RAGMETER_LOG__LEVEL", "RAGMETER_DEBUG"):
        assert error(environ={name: "1"}) == f"{name}: no such setting"


def test_an_unknown_variable_is_a_mistake() -> None:
    text = error(environ={"RAGMETER_HTP__METRICS_PORT": "1"})
    assert "RAGMETER_HTTP__METRICS_PORT" in text


@pytest.mark.parametrize(
    "content",
    ["a: [", "- list", "\x00", "judge: 2025-13-45", f"a: {'9' * 5000}", "[" * 1000],
)
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(content)
    assert str(path) in error(path=path, environ={})
    assert "nowhere.yaml" in error(path=tmp_path / "nowhere.yaml", environ={})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"http: {otlp_port: 1}\nhttp: {metrics_port: 2}\n", "line 2, column 1: http stands twice"),
        (b"http:\n  host: ::1\n  host: 127.0.0.1\n", "line 3, column 3: host stands twice"),
        (b"http: {token: '${TOKEN}'}\n", "http.token holds ${TOKEN}: "),
        (b"http: {token: '${env:TOKEN:-hush}'}\n", "set RAGMETER_HTTP__TOKEN in their place"),
        (b"judge: {base_url: 'http://${HOST}:1/v1', model: m}\n", "judge.base_url holds ${HOST}"),
        (b"segments: [model, '${TAG}']\n", "segments holds ${TAG}: "),
        ("http: {otlp_port: 1}\n".encode("utf-16"), "the file is no text in UTF-8"),
        (b"http:\n\totlp_port: 1\n", "line 2, column 1: found character that cannot start"),
        (b"http:\n\totlp_port: 1\n", ": a tab; indent with blanks"),
        (b"http: {token: *hush}\n", "a text that begins with * needs quotes"),
        (b"http:\n  token: !hush\n", "a text that begins with ! needs quotes"),
        (b"http:\n  token: @hush\n", "a text that begins with a sign needs quotes"),
        (b"http:\n  token: a: hush\n", "a text with `: ` in it needs quotes"),
        (b"[" * 1000, "nested too deeply"),
        (b"htp: {otlp_port: 1}\n", "htp: no such setting; did you mean http?"),
        (b"HTTP: {otlp_port: 1}\n", "did you mean http?"),
        (b"kafka: {securty: {}}\n", "did you mean kafka.security?"),
        (b"http.otlp_port: 1\n", "http.otlp_port: sections are maps in one another"),
        (b"http: {otlp_port: 1}\n---\nhttp: {}\n", "another document"),
    ],
)
def test_what_a_file_of_settings_does_not_mean_is_a_mistake(
    content: bytes, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    found = error(path=path, environ={})
    assert words in found
    assert "hush" not in found
    assert "Is a directory" in error(path=tmp_path, environ={})


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfhttp: {otlp_port: 5}\n",
        b"http:\r\n  otlp_port: 5\r\n",
        b"kafka: &a {}\nhttp:\n  <<: *a\n  <<: {otlp_port: 4}\n  otlp_port: 5\n",
    ],
)
def test_files_as_editors_and_tools_write_them_are_read(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    assert load_settings(path, {}).http.otlp_port == 5


def test_a_variable_made_of_a_file_may_end_with_its_line_end() -> None:
    environ = {
        "RAGMETER_HTTP__HOST": "127.0.0.1\n",
        "RAGMETER_HTTP__OTLP_PORT": "5\r\n",
        "RAGMETER_JUDGE__BASE_URL": "http://127.0.0.1:1/v1\n",
        "RAGMETER_JUDGE__MODEL": "m\n",
        "RAGMETER_JUDGE__API_KEY": "key\n",
        "RAGMETER_WINDOWS": " \n",
    }
    settings = load_settings(environ=environ)
    assert (settings.http.host, settings.http.otlp_port) == ("127.0.0.1", 5)
    assert settings.judge.api_key is not None
    assert settings.judge.api_key.get_secret_value() == "key"


@pytest.mark.parametrize(
    ("given", "wanted"), [('"key"', "key"), ("'key'", "key"), ('"k"y"', '"k"y"')]
)
def test_quotes_of_an_env_file_are_no_part_of_a_value(given: str, wanted: str) -> None:
    settings = load_settings(
        environ={"RAGMETER_JUDGE__API_KEY": given, "RAGMETER_WINDOWS": '"5m,1h"'}
    )
    assert settings.judge.api_key is not None
    assert settings.judge.api_key.get_secret_value() == wanted
    assert settings.windows == ["5m", "1h"]


def test_a_path_may_begin_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    settings = load_settings(environ={"RAGMETER_STATE__PATH": "~/state.db"})
    assert settings.state.path == Path("/home/u/state.db")
    assert load_settings(environ={"RAGMETER_STATE__PATH": "a~b"}).state.path == Path("a~b")


@pytest.mark.parametrize("path", ["$HOME/state.db", "/var/${NAME}/state.db", "$STATE"])
def test_a_variable_in_a_path_is_a_mistake(path: str) -> None:
    found = error(environ={"RAGMETER_STATE__PATH": path})
    assert found.startswith("state.path: ")
    assert "takes no variables" in found


@each_row(
    "host",
    [
        "127.0.0.1:9000",
        "localhost:",
        "http://127.0.0.1",
        "[::1]:9000",
        "127.0.0.1/8",
        "a b",
        "127.0.0.1,::1",
        "unix:///run/ragmeter.sock",
    ],
)
def test_a_host_is_an_address_alone(host: str) -> None:
    assert "one address alone is needed" in error(environ={"RAGMETER_HTTP__HOST": host})


def test_secrets_are_in_no_dump_and_no_error() -> None:
    tree = {
        "alerts": {
            "webhook_url": "https://user:hush@host/hush?key=hush",
            "alertmanager_url": "http://hush:hush@am:9093",
        },
    }
    assert "hush" not in dump_settings(load_settings(environ={}, overrides=tree))
    assert "hush" not in error(
        environ={}, overrides={"alerts": {"page_url": ["https://u:hush@host"]}}
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("hush: hush", "line 2, column 14: mapping values are not allowed here"),
        ("*hush", "line 2, column 10: found undefined alias"),
        ("!hush x", "line 2, column 10: could not determine a constructor for the tag"),
        ("@hush", "line 2, column 10: found character '@' that cannot start any token"),
        ('"hush', "found unexpected end of stream"),
        ("hush\0", "not YAML: unacceptable character"),
    ],
)
def test_a_file_that_is_no_yaml_is_one_line_without_a_secret(
    value: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "ragmeter.yaml"
    path.write_text(f"http:\n  token: {value}\n", "utf-8")
    found = error(path=path, environ={})
    assert words in found
    assert "hush" not in found
    assert "\n" not in found


@each_row(
    "source",
    [
        {"name": "kb", "url": "http://h/{id}", "headers": {"Authorization": "hush"}},
        {"url": "http://h/{id}", "headers": "Authorization: hush"},
        {"name": "kb", "file": "f", "headers": "Authorization: hush"},
        ["Authorization: hush"],
        "Authorization: hush",
    ],
)
def test_a_mistake_in_a_source_shows_no_header(source: object) -> None:
    text = error(environ={}, overrides={"resolvers": {"sources": [source]}})
    assert text.startswith("resolvers.sources.0")
    assert "hush" not in text


@pytest.mark.parametrize(
    "url", ["ftp://u:hush@host", "http://u:hu/hush@host", "http://u:x@hush@:0"]
)
def test_no_password_of_a_broken_address_is_shown(url: str) -> None:
    assert "hush" not in error(environ={}, overrides={"judge": {"base_url": url, "model": "m"}})


def test_a_password_with_an_at_sign_is_not_shown() -> None:
    judge = {"base_url": "http://u:x@hush@host/v1", "model": "m"}
    shown = dump_settings(load_settings(environ={}, overrides={"judge": judge}))
    assert "http://***@host/v1" in shown


@pytest.mark.parametrize("url", ["http://h/v1?key=hush", "http://h/v1#x"])
def test_the_base_url_of_a_judge_is_a_base(url: str) -> None:
    assert "no query" in error(environ={}, overrides={"judge": {"base_url": url, "model": "m"}})


@each_row(
    ("written", "cure"),
    [
        ("http://a:9093 http://b:9093", "have commas between"),
        ("http://a:9093, ftp://b", "needed, not ftp://"),
        ("alertmanager:9093", "an http:// or https:// URL with a host is needed"),
    ],
)
def test_a_broken_url_of_several_names_what_is_wrong_with_it(written: str, cure: str) -> None:
    environ = {"RAGMETER_ALERTS__ALERTMANAGER_URL": written}
    assert cure in error(environ=environ)


def test_the_reference_is_written_and_complete() -> None:
    """`ragmeter config reference > docs/configuration.md` mends it."""
    reference = render_reference()
    assert (ROOT / "docs" / "configuration.md").read_text() == reference
    keys = [key for key, _, _ in iter_settings(AgentSettings)]
    for key in keys:
        assert f"`{key}`" in reference
    assert "Undefined" not in reference


def sections(base: type[SettingsSection] = SettingsSection) -> Iterator[type[SettingsSection]]:
    """Yield every section of the product, those of the items of lists and maps too."""
    for section in base.__subclasses__():
        if section.__module__.startswith("ragmeter."):
            yield section
        yield from sections(section)


def test_every_setting_has_a_description() -> None:
    assert Settings in sections()
    for section in sections():
        for name, field in section.model_fields.items():
            if not isinstance(field.default, SettingsSection):
                assert field.description, f"{section.__name__}.{name}"


def test_the_ready_made_redaction_rules_are_described() -> None:
    described = PrivacySettings.model_fields["redact"].description
    assert described is not None
    assert all(name in described for name in BUILTIN_RULES)


def test_default_rules_on_a_window_that_is_not_there_are_off() -> None:
    every = load_configured_rules(load_settings(environ={}))
    fewer = load_configured_rules(load_settings(environ={}, overrides={"windows": ["1h"]}))
    assert 0 < len(fewer) < len(every)


def test_a_key_of_a_judge_is_never_shown(tmp_path: Path) -> None:
    secret = "sk-very-secret"
    for tree in (
        {"judge": {"base_url": "http://a/v1", "api_key": secret}},
        {"judge": {"api_key": [secret]}},
        {"judge": {"api_key": {"x": secret}}},
        {"judge": {"second": {"base_url": "http://a/v1", "api_key": secret}}},
    ):
        with pytest.raises(ConfigError) as error:
            load_settings(environ={}, overrides=tree)
        assert secret not in str(error.value)
    environ = {"RAGMETER_JUDGE__API_KEY": secret, "RAGMETER_JUDGE__K": "3,5"}
    settings = load_settings(environ=environ)
    assert settings.judge.k == [3, 5]
    assert secret not in dump_settings(settings)
    assert secret not in repr(settings)


def test_a_judge_needs_the_name_of_a_model() -> None:
    with pytest.raises(ConfigError, match="base_url needs model"):
        load_settings(environ={"RAGMETER_JUDGE__BASE_URL": "http://127.0.0.1:1/v1"})


def test_a_budget_in_money_needs_prices() -> None:
    tree = {"judge": {"budget": {"usd_per_day": 5}}}
    with pytest.raises(ConfigError, match=r"budget\.usd_per_day needs input_usd_per_million"):
        load_settings(environ={}, overrides=tree)
    tree["judge"]["output_usd_per_million"] = 0.6  # type: ignore[assignment]
    assert load_settings(environ={}, overrides=tree).judge.budget.usd_per_day == 5


def test_a_judge_is_asked_for_something() -> None:
    with pytest.raises(ConfigError, match=r"judge\.metrics"):
        load_settings(environ={}, overrides={"judge": {"metrics": []}})


@pytest.mark.parametrize("given", ["[::1]", "::1"])
def test_an_address_in_brackets_is_an_address(given: str) -> None:
    environ = {"RAGMETER_HTTP__HOST": given, "RAGMETER_KAFKA__BOOTSTRAP_SERVERS": "[::1]:9092"}
    settings = load_settings(environ=environ)
    assert settings.http.host == "::1"
    assert settings.kafka.bootstrap_servers == ["[::1]:9092"]


def test_a_broker_may_have_an_address_with_a_zone() -> None:
    for server in ("[fe80::1%eth0]:9092", "[::1]:9092"):
        settings = load_settings(environ={"RAGMETER_KAFKA__BOOTSTRAP_SERVERS": server})
        assert settings.kafka.bootstrap_servers == [server]
