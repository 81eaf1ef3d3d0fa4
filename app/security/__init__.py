"""Authentication, authorization and TLS. Reading order:

- ``tls``                 TLS of listeners, and of requests to other brokers
- ``principal``           the principal of a peer, and its login
- ``scram``               SCRAM credentials, messages and proofs (RFC 5802)
- ``sasl``                the SASL mechanisms as exchanges without I/O
- ``login_throttle``      slows failed logins down
- ``credentials``         users and API keys, in memory and in the catalog
- ``jwt_keys``, ``jwt_tokens``   the keys of a token issuer; validation of tokens
- ``audit``               one line per login, change and denied request
- ``authenticator``       verifies credentials, for all listeners
- ``acl``                 access rules and filters of them, in Kafka's terms
- ``acl_text``            rules as names, for JSON and the command line
- ``acl_index``           decides by rules: a pure function
- ``acls``                the rules in force, in memory and in the catalog
- ``authorizer``          authorizes principals; caches decisions until rules change
- ``policy``              login policy of listeners; configurations refused at a start
- ``forwarding``          signatures of requests that a broker forwards for its client
- ``service``, ``offline``   puts these together; users, keys and rules without a broker
"""
