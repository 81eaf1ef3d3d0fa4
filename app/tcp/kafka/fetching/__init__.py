"""Fast paths of Fetch, with the same results as its handler. Reading order:

- ``fetch_routes``, ``direct_fetch``   a fetch of few partitions
- ``wide_requests``, ``wide_fetch``   a fetch of many partitions, most of them idle
"""
