"""The part `incidents`: the rules over the windows, their alerts, and what is announced of all."""
