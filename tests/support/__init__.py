"""Shared by several tests: peers, engines, and a disk and a clock that the test controls."""
