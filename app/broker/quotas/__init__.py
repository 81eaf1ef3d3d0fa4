"""Client quotas, for all listeners (ADR-0032). Reading order:

- ``entities``   entities of quotas, and filters over them
- ``limits``     the quotas that can be set, their rules, and which of them holds for a client
- ``rate``       a rate over sliding samples, as Apache Kafka measures it
- ``machine``    usage and waits of every client, and meters of one client; pure
- ``manager``    keeps the quotas in the catalog; the interface for listeners
- ``timed``      measures how long a coroutine holds the event loop
"""
