"""What must not be kept: redaction of texts as they come in, and how much of a trace is kept."""
