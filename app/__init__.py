"""The broker.

Imports point downwards only: docs/architecture.md draws the layers, pyproject.toml checks them.
"""
