"""Queries over the broker, without a protocol: what a listener encodes, it is given as records.

In reading order: ``filters`` (which records match), ``searching`` (a scan that
ends), ``tailing`` (the records of a topic as they are appended), ``positions``
(offsets and times in the words of a request).
"""
