"""What can be asked of a broker: each operation knows its binary frame and its HTTP request.

No I/O here. A transport carries an operation either way; a new operation is one
class in one of these files.

- ``base``          the shape of an operation, and of the HTTP exchange it may become
- ``json_records``  records as JSON, in both directions
- ``produce``       storing records, and producer ids
- ``fetch``         reading records, and finding offsets
- ``raw_fetch``     batches as they lie in the log
- ``topics``        topics, and the broker as a whole
- ``groups``        membership in a consumer group, ownership of partitions, commits
- ``leases``        reading as a group without a member: polls and acknowledgements
- ``group_admin``   listing, describing and deleting groups, resetting offsets
"""
