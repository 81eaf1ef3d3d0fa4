"""The two TCP listeners. Reading order:

- ``server``                        counts and closes connections
- ``request_cutter``                cuts the bytes received into requests
- ``connection_state``, ``deferred_response``, ``response_queue``, ``flow_control``   the parts of a connection
- ``begun_work``                    coroutines that get a task only if they wait
- ``connection_owner``              the interface of a connection to its listener
- ``connection``, ``deadlines``     moves bytes between these parts and the socket; one timer per listener
- ``quota_delays``                  delays a connection whose client has exceeded a quota
- ``errors``                        the error tree as error codes
- ``binary``                        the binary protocol (ADR-0009, ADR-0010)
- ``kafka``                         the Kafka protocol (ADR-0013)
"""
