"""Commands on files: score, report, backtest, replay and inspect."""
