"""Scorers that need a model: LLM judge, embeddings, local HHEM."""
