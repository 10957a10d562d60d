"""The agent on a Kafka cluster: processors on Faust joined by topics, with state in compacted changelogs."""
