"""What several tests share: a disk and a clock that a test holds in its hand."""
