"""The console in the browser; it uses only the public HTTP API (ADR-0018)."""
