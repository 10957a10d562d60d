"""Commands of the operator, on kafka-python: nothing here runs in a worker."""
