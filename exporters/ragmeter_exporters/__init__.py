"""Windows and alerts to the outside: Prometheus, Alertmanager, webhook, status page, files."""
