"""How the embedded grounding model is made and measured."""
