"""The settings tree, its loader and its reference."""
