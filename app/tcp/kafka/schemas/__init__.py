"""One file per API: its request and response in all versions, as declarations."""
