"""State that outlives the process, in SQLite."""
