"""Series of ``bench_growth``: the same work at several sizes, and what it costs the broker.

- ``costs``         CPU time per unit of work, and for how long a bystander waits
- ``crowd``         many connections that send the same
- ``peers``         connections that speak the Kafka protocol
- ``connections``   connections that are opened, idle, and are closed
- ``partitions``    requests about all partitions of a topic, and the passing of time
- ``readers``       consumers that catch up
- ``tables``        tables of compacted topics over HTTP, by their keys
- ``groups``        members of classic groups, of groups that the broker assigns, and of share groups
- ``transactions``  transactional ids, and reads over aborted transactions
- ``http``          Fetch requests, tails and long polls at the end of a partition, and large values over HTTP
- ``series``        all of them, with their sizes and what they need
"""
