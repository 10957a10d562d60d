"""The status page: view models, formatting and HTML."""
