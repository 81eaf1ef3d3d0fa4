"""Transports, which carry operations to a broker over TCP or HTTP.

The URL selects one. A transport connects on first use, and again after the connection
broke; callers depend on no state of it.

- ``base``                          the brokers of a URL, pauses between attempts, errors
- ``tls``                           contexts and errors of TLS
- ``scram``, ``login``              the login of a connection of the binary protocol, without I/O
- ``async_tcp``, ``tcp``            the binary protocol
- ``http_common``                   an operation's HTTP request; translation of httpx's errors
- ``async_http``, ``http``          HTTP
- ``async_transport``, ``transport``  the interface, and the choice by URL; what readers need of a client
"""
