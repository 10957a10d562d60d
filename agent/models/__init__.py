"""Local models that score traces without a network."""
