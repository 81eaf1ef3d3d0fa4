"""The HTTP listener. Reading order:

- ``application``, ``server``   the FastAPI application; uvicorn, fed by the accept loop
- ``state``                     state shared by all routes
- ``routes``                    one module per subject: requests in, responses out
- ``routing``, ``parameters``   how a route is declared, and what it reads from the query, the path and the headers
- ``schemas``                   the types of bodies and answers as JSON Schema
- ``requests``, ``json_bodies``   bodies within their bounds, JSON as typed structs
- ``rights``, ``guarded_route`` required rights per route, and their check
- ``encoded_slash``             routes on which an encoded slash is part of a name
- ``errors``                    the error tree as RFC 9457 problem documents
- ``replaced_problems``         errors of other APIs in their place
- ``http``                      HTTP below the application
- ``records``, ``record_selection``, ``record_encoding``   records in requests and responses; which records, how much of
  each; with which schemas
- ``metrics``                   Prometheus
- ``group_json``                offsets of groups in JSON, by topic
- ``direct_produce``            fast path for a produce of one JSON record, before the application
- ``cluster_document``          the cluster as JSON, and a broker's report to the others
- ``authentication``, ``sessions``   a login for every request; the sessions of the console
- ``forwarding``                requests for groups that another broker of the cluster coordinates
- ``settlement_forwarding``     settlements of transactions in such groups
- ``throttling``                requests charged to quotas; 429
- ``openapi``                   the OpenAPI document, from the declarations of the routes
- ``console``                   the console's pages and modules
- ``registry``                  the listener of the schema registry
"""
