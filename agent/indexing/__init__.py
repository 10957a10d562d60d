"""Indexing coverage: what the jobs that fill an index say of it, and what that comes to."""
