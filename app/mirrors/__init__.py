"""Mirrors, which copy topics of other clusters with their offsets: the listener that runs them.

- ``supervisor``  a process per mirror, and what may be done with a mirror
- ``metrics``     what the processes report
"""
