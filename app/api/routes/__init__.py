"""One file for each concern; each has a ``router``."""
