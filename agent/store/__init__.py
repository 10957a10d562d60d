"""State that outlives the process."""
