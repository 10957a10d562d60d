"""The embedded agent on SQLite: endpoints, queue, worker and commits."""
