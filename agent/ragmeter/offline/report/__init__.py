"""Reports on scored files: summaries of runs and comparisons between them."""
