"""Supply the commands of the terminal with what needs the exporters.

The commands may not import `ragmeter_exporters`: checks of settings, Prometheus rules, and the
pages of reports reach them through this module.
"""

from __future__ import annotations

from ragmeter_exporters.otel.exporter import ResultsExporter
from ragmeter_exporters.report_page import render_report_page as render_report
from ragmeter_exporters.rules.rule_file import rule_file, rule_groups

from ragmeter.alerts.rule_sets import RUNBOOK_BASE, load_configured_rules
from ragmeter.app.parts import PARTS
from ragmeter.config.loader import ConfigError
from ragmeter.config.settings import Settings
from ragmeter.core.outgoing import find_proxy
from ragmeter.kafka.connection import read_password, tls_context
from ragmeter.parts.collection import check_parts
from ragmeter.scorers.llm.transport import ApiKey
from ragmeter.scoring.slow_tiers import ConfiguredTiers
from ragmeter.server.access import AccessPolicy

__all__ = ["check_settings", "prometheus_rules", "render_report"]


def check_settings(settings: Settings) -> int:
    """Check everything that the settings name: rules, probes, key files, ports and models.

    Returns:
        The number of alert rules in force.

    Raises:
        ConfigError: A setting cannot work.
        RuleError: An alert rule is invalid.
        ModelError: The local model cannot be loaded.
        UnusableResource: A proxy of the environment cannot be one.
        OSError: A named file cannot be read.
    """
    rules = load_configured_rules(settings)
    ConfiguredTiers(settings, watched=True)
    ResultsExporter(settings.results_export)
    AccessPolicy(settings)
    check_parts(PARTS, settings)
    security = settings.kafka.security
    if security.tls:
        tls_context(security)
    if security.password_file is not None:
        read_password(security)
    if security.oauth.token_file is not None:
        from ragmeter.kafka.oauth import read_token  # needs the extra `kafka`

        read_token(security.oauth)
    alerts = settings.alerts
    called = [
        *alerts.alertmanager_url,
        alerts.webhook_url,
        settings.judge.base_url,
        settings.judge.second.base_url,
        *(source.url for source in settings.resolvers.sources),
    ]
    for url in filter(None, called):
        find_proxy(url.get_secret_value())
    for name, endpoint in (("judge", settings.judge), ("judge.second", settings.judge.second)):
        if endpoint.api_key is not None and endpoint.api_key.get_secret_value():
            key = ApiKey(endpoint.api_key, None)
            if key.problem:
                raise ConfigError(f"{name}.api_key: {key.problem}")
        if endpoint.api_key_file is not None:
            key = ApiKey(None, endpoint.api_key_file)
            if key.problem:
                raise ConfigError(f"{name}.api_key_file: {endpoint.api_key_file}: {key.problem}")
    return len(rules)


def prometheus_rules(settings: Settings) -> str:
    """Write the Prometheus rule file of the settings.

    Raises:
        ConfigError: An objective names an unknown metric or scorer.
    """
    check_parts(PARTS, settings)
    groups = rule_groups(
        PARTS,
        settings,
        settings.alerts.runbook_base or RUNBOOK_BASE,
    )
    return rule_file(groups)
