"""Complete the OpenAPI document: parameters, bodies, answers and examples.

One module per module of ``app.api.routes``, with one operation per route.
``components`` names schemas and errors, ``parts`` holds parameters and media types that
operations share, and ``document`` adds the components and the logins to the document.
Every example can be sent as it stands.

Request bodies are generated from the structs that the routes decode
(``request_bodies``). Parameters and answers are written by hand. Routes take the
bare request, because typed parameters of FastAPI would cost time on the hot path
and would answer a bad value with 422 and an error format of their own instead of a
problem document. Answers are assembled as dicts or written as bytes, so no type
exists from which they could be generated. ``tests/unit/api/test_openapi_parameters.py``
checks the parameters against what each route reads, and
``tests/integration/test_openapi_answers.py`` the answers against what each returns.
"""

from __future__ import annotations

DESCRIPTION = """\
One durable log. This API writes and reads it with JSON, NDJSON or bytes; the binary and the Kafka protocol serve the
same records.

Every write reports its durability (`replicated`, `synced`, `appended`, `none`). Every read is a plain GET and moves no position.
Every error is an RFC 9457 problem with a stable `type`, a `kafka_code` and `retriable`.
"""
