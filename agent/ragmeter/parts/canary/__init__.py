"""Canaries: how they ended, and the rules on what they say."""
