"""What is said of a trace afterwards: labels, and how they are merged."""
