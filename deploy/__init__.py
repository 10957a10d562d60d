"""How ragmeter is run by others: containers, charts, rules, dashboards."""
