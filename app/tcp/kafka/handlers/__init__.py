"""What each API does: translates its messages into calls of the broker and back, and keeps nothing."""
