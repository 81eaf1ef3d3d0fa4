"""Accepts connections for all listeners. Reading order:

- ``binding``        sockets that are bound and listen, and errors that say what to change
- ``admission``      limits of connections: in total, per address, and of open files
- ``accept_rate``    how fast connections may come
- ``accept_loop``    accepts connections within the limits, and hands them on
- ``handshake_thread``   TLS handshakes beside the event loop, one at a time
- ``tls_transport``  TLS between the transport of a socket and the protocol above it
- ``closings``       closes connections whose clients have left, some in each turn of the loop
- ``first_bytes``    tells TLS from plaintext, to answer clients that use the wrong one
- ``pending_bytes``  bounds the bytes of incomplete requests
"""
