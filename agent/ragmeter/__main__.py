"""`python -m ragmeter` is the command `ragmeter`."""

from ragmeter.cli import start

if __name__ == "__main__":
    start()
