"""One number for each of the eight questions that people ask of a service."""
