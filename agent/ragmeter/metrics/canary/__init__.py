"""Metrics of canaries: traces whose reference says what the right answer is."""
