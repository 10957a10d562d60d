"""Segments: which of them moved a mean, under one budget of false discoveries."""
