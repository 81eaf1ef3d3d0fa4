"""The schema registry: subjects, versions and their compatibility, kept in the topic ``_schemas``.

It knows no protocol: ``app.api.registry`` is its listener.

Reading order:

- ``definitions``, ``errors``     what requests carry and answers have; what is refused, by Confluent's codes
- ``names``                       subjects and contexts
- ``contents``, ``rules``         a schema with what belongs to it, and its digests; metadata and rules
- ``topic_format``                the records of the topic
- ``state``                       what the records add up to
- ``decisions``                   deletions, configurations, modes, contexts: what to answer and append
- ``registrations``               the same of schemas: equality, ids, versions, compatibility
- ``types``, ``compatibility``    the types of schemas; whether data of one can be read with another
- ``parsed``                      schemas that were parsed, in threads
- ``store``                       the topic: read to its end, and appended to if it still ends there
- ``contracts``                   what topics ask of their records, checked in the threads of the broker
- ``json_process``                large values of JSON Schema, checked in a process of their own
- ``values``, ``encoding``        keys and values as JSON, and JSON as keys and values, for listeners
- ``service``                     the registry, as a listener calls it
"""
