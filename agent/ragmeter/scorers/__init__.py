"""Scorers that need a model: LLM judge, local HHEM."""
