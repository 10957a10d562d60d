"""What the user read of an answer: the text without thoughts and wrappings, and what it cites."""
