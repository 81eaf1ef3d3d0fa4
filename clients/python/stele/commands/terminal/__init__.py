"""What goes in and out of a terminal.

- ``results``                            results as text or JSON, and confirmations
- ``inputs``, ``outputs``, ``progress``  files → records, records → text, a progress line
"""
