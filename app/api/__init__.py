"""The HTTP listener. Reading order:

- ``application``, ``server``   the FastAPI application; uvicorn behind the accept loop
- ``state``                     what every route shares
- ``routes``                    one module per subject: requests in, responses out
- ``requests``, ``json_bodies``, ``bodies``   parameters, bodies within their bounds, JSON as typed structs
- ``rights``, ``guarded_route`` what a client must be allowed to do, per route, and where that is checked
- ``encoded_slash``             routes on which an encoded slash is part of a name
- ``errors``                    the error tree as RFC 9457 problem documents
- ``record_page``               one page of records, and the offset to continue from
- ``record_json``, ``record_arrow``, ``showing``   records as JSON and Arrow; which records, how much of each
- ``record_decoding``           JSON of large records decoded in several turns of the event loop
- ``large_records``             JSON of records that are too large for one turn of the event loop
- ``group_json``                offsets of groups in JSON, by topic
- ``direct_produce``            the short way of a produce of one JSON record, before the application
- ``upload``, ``ndjson_upload`` records from a request into the log; NDJSON streamed in and out
- ``tail_streams``, ``event_ids``, ``stream_slots``   live tails, their resumable ids, limits for streams
- ``cluster_document``          the cluster as JSON, and what a broker reports to the others
- ``transaction_records``   records for several topics in one request
- ``table_streams``             tables of compacted topics, and the changes after them
- ``cross_site``                CSRF and DNS-rebinding protection
- ``authentication``, ``sessions``   a login for every request; the sessions of the console
- ``forwarding``                requests for groups that another broker of the cluster coordinates
- ``settlement_forwarding``     what a transaction settles in such groups
- ``http_limits``               what a connection may send outside of bodies
- ``request_ids``, ``http_traffic``, ``metrics``, ``listener_metrics``, ``cluster_metrics``, ``transaction_metrics``   request ids, connections and bytes, Prometheus
- ``throttling``                requests charged to quotas; 429
- ``openapi``                   the OpenAPI document beyond the signatures of the routes
- ``console``                   the console's pages and modules
"""
