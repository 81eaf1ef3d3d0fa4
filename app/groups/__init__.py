"""Consumer groups: who reads what, and how far. Knows no protocol; every door uses it."""
