"""What each request of the binary protocol does: calls the broker or the groups, and keeps nothing."""
