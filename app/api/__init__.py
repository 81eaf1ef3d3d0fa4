"""The HTTP listener. Reading order:

- ``application``, ``server``   the FastAPI application; uvicorn on a socket that is already bound
- ``state``                     what every route shares
- ``routes``                    one module per subject: requests in, responses out
- ``requests``, ``json_bodies``, ``bodies``   parameters, bodies within their bounds, JSON as typed structs
- ``encoded_slash``             routes on which an encoded slash is part of a name
- ``errors``                    the error tree as RFC 9457 problem documents
- ``record_json``, ``record_arrow``, ``showing``   records as JSON and Arrow; which records, how much of each
- ``group_json``                offsets of groups in JSON, by topic
- ``upload``, ``ndjson_upload`` records from a request into the log; NDJSON streamed in and out
- ``tail_streams``, ``event_ids``, ``stream_slots``   live tails, their resumable ids, limits for streams
- ``cross_site``                CSRF and DNS-rebinding protection
- ``request_ids``, ``http_traffic``, ``metrics``   request ids, connections and bytes, Prometheus
- ``openapi``                   the OpenAPI document beyond the signatures of the routes
- ``console``                   the console's pages and modules
"""
