"""What crosses the topics: the forms of the messages, written and read."""
