"""What indexing jobs report of the index behind a service: documents, chunks, versions."""
