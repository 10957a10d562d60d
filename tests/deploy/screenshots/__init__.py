"""Images of the dashboard for the docs: drawn from their JSON by a page of our own.

Grafana itself is in none of the registries that we build from. Series are drawn by uPlot, the
library that Grafana draws with; layout, units, legends and tables are ours and only like Grafana's.
"""
