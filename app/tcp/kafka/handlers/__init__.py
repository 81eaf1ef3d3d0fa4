"""What each API does: translates its messages into calls of the broker and back. Handlers keep no state."""
