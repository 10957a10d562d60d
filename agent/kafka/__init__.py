"""The agent on a cluster: the same two halves, joined by Kafka topics."""
