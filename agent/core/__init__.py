"""Types and services that every other folder uses: scores, metric specs, counters, clocks and errors."""
