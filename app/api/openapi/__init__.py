"""The OpenAPI document, made from the declarations of the routes. Reading order:

- ``operations``   what a route declares
- ``document``     operations, components and logins in the document of FastAPI

Routes take the bare request: typed parameters of FastAPI would cost time on the hot path, and would answer a bad value
with 422 and an error format of their own. Every example can be sent as it stands.
"""

from __future__ import annotations

DESCRIPTION = """\
One durable log. This API writes and reads it with JSON, NDJSON or bytes; the binary and the Kafka protocol serve the
same records.

Every write reports its durability (`replicated`, `synced`, `appended`, `none`). Every read is a plain GET and moves no position.
A query parameter that a route does not know is refused.
Every error is an RFC 9457 problem with a stable `type`, a `kafka_code` and `retriable`.
"""
