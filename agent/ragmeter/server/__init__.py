"""A guarded HTTP listener, and the client for it."""
