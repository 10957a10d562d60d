"""HTTP client for any OpenAI-compatible LLM server."""
