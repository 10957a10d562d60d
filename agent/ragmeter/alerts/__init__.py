"""What every floor says of alerts: their values, rules, runbooks and PromQL."""
