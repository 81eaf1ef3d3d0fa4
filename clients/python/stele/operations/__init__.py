"""Operations of a broker, each with its binary frame and its HTTP request.

No I/O: a transport executes an operation. A new operation is one class in one of these
modules.

- ``base``          the base class of operations; HTTP requests and responses
- ``json_records``  records as JSON, in both directions
- ``produce``       storing records, and producer ids
- ``transactional`` beginning and ending transactions
- ``fetch``         reading records, and finding offsets
- ``raw_fetch``     batches as stored in the log
- ``tables``        compacted topics by key, and as tables
- ``topics``        topics, and the broker as a whole
- ``groups``        membership in a consumer group, ownership of partitions, commits
- ``leases``        reading under leases: polls and acknowledgements
- ``share_queue``   single records of share groups
- ``transactions``  transactions over several requests
- ``group_admin``   listing, describing and deleting groups, resetting offsets
- ``acls``          access rules
- ``users``         users and API keys
- ``transaction_admin``   listing, describing and aborting transactions, what is open in partitions
- ``quotas``        quotas of users, client ids and addresses
- ``mirror_admin``  mirrors: creating, listing and deleting them, promoting their copies
- ``sql``           SQL statements over topics
- ``iceberg_admin`` topics as Iceberg tables: how far each is
- ``replica``       the replica in a bucket
- ``mirrors``       what a mirror writes into its copies
"""
