"""The agent on Kafka: Faust processors joined by topics, with state in compacted changelogs."""
