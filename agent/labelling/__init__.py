"""Labels meet the traces they are about: in the running agent, on Kafka, and in a file."""
