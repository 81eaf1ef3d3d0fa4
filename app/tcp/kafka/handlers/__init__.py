"""One handler per API: translates messages into calls of the broker and back.

Handlers keep no state.
"""
