"""The stages of a worker: messages in, durable steps, acknowledged in order."""
