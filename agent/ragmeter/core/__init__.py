"""Types and services that every other folder uses: scores, counters, clocks, errors and more."""
