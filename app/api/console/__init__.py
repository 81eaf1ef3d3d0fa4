"""The console: pages and modules that a browser runs against the public HTTP API, and nothing else (ADR-0018)."""
