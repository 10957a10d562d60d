"""The processors of a worker: messages in, durable results out, acknowledged in order."""
