"""The whole of ragmeter with the parts it works with, all of them real."""
