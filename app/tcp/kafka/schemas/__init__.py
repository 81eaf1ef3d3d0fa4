"""One file an API: its request and response in all versions, as declarations."""
