"""Embeddings of texts, by an OpenAI-compatible endpoint."""
