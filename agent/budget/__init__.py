"""How much of the traffic may be judged, so that spend follows the budget. Pure."""
