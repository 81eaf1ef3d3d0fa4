"""The Kafka protocol, whose messages ``stele.wire.kafka`` declares. Reading order:

- ``request_cutter``                cuts the stream into requests
- ``connection``                    one connection: from a request to its handler, and its response
- ``sasl_session``                  logins of a connection, and what it may send before one
- ``apis``, ``served``              the table of APIs and a row of it; drives ApiVersions and dispatch
- ``context``                       what a handler is given and may return
- ``topics_named``                  the topics of a request, and the look for those not known here
- ``features``                      the features that ApiVersions finalizes
- ``guards``                        what a client must be allowed to do, per API
- ``direct_produce``                the fast path of the commonest produce, with the same result as its handler
- ``route_learning``                when a request is decoded to be remembered
- ``direct_charge``                 charges requests of the fast path to quotas
- ``sessions``                      of fetches and of members of share groups
- ``fetching``                      how a Fetch is read: looks, waits, cached answers of idle partitions
- ``handlers``                      one handler per API, over the broker, and the rows of the table
- ``throttling``                    charges a request to quotas
- ``failures``                      the response to a request whose handler has failed, made from the schemas
- ``message_set``                   message formats v0 and v1, to and from record batches
- ``frame_forwarding``, ``share_forwarding``  requests of share groups whose coordinator is another broker
- ``trace``, ``spans``              log lines and OpenTelemetry spans of requests
"""
