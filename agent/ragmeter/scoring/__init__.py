"""Score one trace through its tiers."""
