"""Models in folders of their own: the embedded grounding model `mini`, and those of users."""
