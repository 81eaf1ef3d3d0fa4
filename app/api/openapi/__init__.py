"""The OpenAPI document beyond the signatures of the routes: parameters, bodies and examples, which all run as they stand.

A module per module of ``app.api.routes``, with one operation per route; ``parts`` is what they share.
"""

from __future__ import annotations

DESCRIPTION = """\
One durable log, written and read here with JSON, NDJSON or bytes, and over the binary protocol at the same time.

Every write says how durable it is (`synced`, `appended`, `none`), every read is a plain GET that moves nothing,
every error is an RFC 9457 problem with a stable `type`, a `kafka_code` and `retriable`.
"""
