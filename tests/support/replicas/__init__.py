"""A simulation of replicas: brokers with their logs and stores, and the bucket that all of them write.

- ``bucket``    a bucket whose requests are late, fail, get lost, or take effect after they failed
- ``chain``     an independent reader of a bucket: it shares no code with the broker
- ``tables``    stores, which are written in threads of their own
- ``moments``   what a broker had at the moment of a cut
- ``broker``    one broker: a real engine on simulated files, and the real replicator
- ``restore``   a data directory from a cut
- ``promises``  what must be true of each cut, and of what stays in the bucket
- ``history``   a random history from a seed
"""
