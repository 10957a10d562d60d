"""Download and conversion of the published HHEM; never imported by the running agent."""
