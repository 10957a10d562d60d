"""Alerts as every floor knows them: values, rules, runbooks and PromQL."""
