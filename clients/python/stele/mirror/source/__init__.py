"""The source of a mirror: a client of Kafka's protocol.

- ``tls``, ``sasl``  encryption and logins
- ``connection``     one connection: frames, versions, login
- ``cluster``        the brokers, and connections to them
- ``reads``          what a mirror asks for, as plain values
"""
