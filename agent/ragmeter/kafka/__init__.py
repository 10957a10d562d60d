"""The agent on Kafka: processors joined by topics, with state in compacted changelogs."""
