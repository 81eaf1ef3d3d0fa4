"""HTTP below the application. Reading order:

- ``head_rules``, ``refusals``   whether a request is served, by its head; answers without the application
- ``exchange``, ``connection``   one request and its response; a connection and the order of its requests
- ``body_codings``     bodies that are compressed
- ``cross_site``       CSRF and DNS-rebinding protection
- ``request_ids``, ``traffic``   request ids; connections and bytes
"""
