"""`ragmeter replay`: a file of traces sent as traffic, to a running agent or to Kafka."""
