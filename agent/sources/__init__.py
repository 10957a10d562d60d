"""Where bytes come from, a file per transport."""
