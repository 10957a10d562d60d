"""A port that is listened on: who may use it, how it is encrypted, and what it bears."""
