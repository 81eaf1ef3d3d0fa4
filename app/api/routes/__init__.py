"""Serve the HTTP API: one module per subject, each with a ``router``."""
