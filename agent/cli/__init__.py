"""The commands of `ragmeter`."""
