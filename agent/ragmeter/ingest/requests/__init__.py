"""From the spans of a closed trace to native traces, one per request."""
