"""Copies of tables: before the stream, and beside it.

- ``windows``           where a part of a copy meets the stream; no I/O
- ``beside``, ``copies``   copies beside the stream, and before it
- ``published``         what the publication had and has of the tables
"""
