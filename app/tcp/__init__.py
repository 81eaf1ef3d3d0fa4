"""The two TCP listeners. Reading order:

- ``server``                        accepts, counts and closes connections
- ``connection``, ``deadlines``     moves bytes and keeps the order of answers; one timer per listener
- ``errors``                        the error tree as error codes
- ``binary``                        the binary protocol (ADR-0009, ADR-0010)
- ``kafka``                         the Kafka protocol (ADR-0013)
"""
