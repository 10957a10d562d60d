"""LLM judges: what they are asked about a trace and the scores from it."""
