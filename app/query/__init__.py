"""Search and follow records, independently of a protocol; a listener encodes the results.

In reading order: ``filters`` (which records match), ``searching`` (a scan over
existing records), ``tailing`` (records as they are appended), ``positions`` (offsets
and times as requests write them).
"""
