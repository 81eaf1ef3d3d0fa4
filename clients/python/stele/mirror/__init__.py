"""Mirrors: copies of topics of another cluster, or in another cluster, with the same offsets.

Reading order, from what decides to what runs; nothing above ``source`` does I/O:

- ``errors``, ``definition``, ``properties``  what a mirror copies, from where or to where, and how it connects
- ``positions``                               where a copy goes on, what it takes, and when it must not
- ``divergence``                              up to where a copy and its source have the same batches
- ``source``                                  the source: a client of Kafka's protocol
- ``target``                                  the copies, over the binary protocol
- ``outward``                                 copies in a Kafka cluster
- ``partition``, ``flow``                     the state of one partition; how much is under way
- ``comparisons``                             the batches of copies beside those of the source
- ``copying``                                 partitions, each from its leader
- ``topics``, ``groups``, ``access``          what is copied beside records
- ``status``, ``run``                         what a supervisor reads; the mirror as a whole
"""
