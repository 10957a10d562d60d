"""Labels that people give traces: the pool to draw from, the join to traces, and the desk."""
