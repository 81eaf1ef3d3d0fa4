"""The routes of the registry, one module per subject: requests in, responses out.

``subjects`` and ``schemas`` (versions, and what is found by id), ``compatibility``, ``configs`` (and modes), ``contexts``.
"""
