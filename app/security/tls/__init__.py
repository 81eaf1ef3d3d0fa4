"""TLS of listeners, and of requests to other brokers. Reading order:

- ``certificate``         reads the validity of a certificate
- ``distinguished_name``  writes the subject of a certificate as one line of text (RFC 4514)
- ``principal_mapping``   turns that text into the name of a principal, by Kafka's rules
- ``listener_tls``        the certificate, key and client CAs of one listener, and how they are replaced
- ``peer_tls``            the certificate and CAs for requests to other brokers
- ``settings``            both, from the settings
- ``reload``              notices changed files, and reloads them
"""
