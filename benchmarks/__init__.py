"""Programs that measure what ragmeter takes, as ratios within one run."""

import os

# Processes that compile anew all that they import would add a second of CPU to each start, which an
# installed agent does not take: 50 µs a trace of a replay of 20,000.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
