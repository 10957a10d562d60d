"""The whole instrument with the parts it works with, all of them real."""
