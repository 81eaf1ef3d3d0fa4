"""Log compaction: keep the last record of each key. Reading order:

- ``key_map``        hashes of keys → last offset, in bounded memory
- ``record_bounds``  where the records of a batch begin and end, without decoding them
- ``record_keys``    the keys of a batch, by the compiled codec
- ``dirty_records``  the verdict of mapping on each dirty record
- ``batch_filter``   filters one batch
- ``transactions``   which batches are aborted, and which markers are still needed
- ``planning``       which partition is cleaned next, up to which offset, in which groups of segments
- ``cleaned_segment``   reading segments with holes, writing a cleaned one beside the old
- ``pass_state``     the state of a pass: map the keys, filter all batches
- ``replacement``    putting the cleaned segment in the place of the old, safe against crashes
- ``pass_work``      all that a pass needs to know, and its work
- ``pass_workers``   where a pass does its work: in a process or in a thread
- ``worker_messages``, ``worker_process``   the process that does it for a broker

The semantics are Apache Kafka's (``cleanup.policy=compact``, KIP-58, KIP-534).
Nothing here touches the event loop: a pass runs in a process of its own or in a thread.
"""
