"""Client quotas, for all listeners (ADR-0032). Reading order:

- ``entities``   what a quota is for, and how quotas are searched
- ``limits``     the quotas that can be set, their rules, and which of them holds for a client
- ``rate``       a rate over sliding samples, as Apache Kafka measures it
- ``machine``    what every client has used, how long it has to wait, and meters of one client; pure
- ``manager``    keeps the quotas in the catalog, and is what listeners call
- ``timed``      measures how long a coroutine holds the event loop
"""
