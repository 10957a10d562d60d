"""The agent's alert rules, and those on the agent itself, as rules for Prometheus."""

from exporters.rules.file import RuleFile, rule_file

__all__ = ["RuleFile", "rule_file"]
