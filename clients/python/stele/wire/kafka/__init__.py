"""Requests and responses of Kafka's protocol in all versions, as declarations.

- ``headers``  what precedes each request and response
- ``api``      an API: its key, versions and messages
- one module per subject: ``acls``, ``api_versions``, ``cluster``, ``committed_offsets``, ``configs``, ``consumer_groups``,
  ``fetch``, ``groups``, ``metadata``, ``offsets``, ``produce``, ``quotas``, ``security``, ``share_groups``,
  ``streams_groups``, ``topics``, ``transactions``, ``users``
"""
