"""Kafka's command-line tools against two brokers: the same calls, and what differs in their answers.

Reading order: ``shell`` (runs tools), ``compaction_calls``, ``calls`` (what is called), ``comparison`` (normalizes
and compares), ``accepted`` (differences that may stay, each with its reason), ``page`` (the table of
``docs/conformance.md``). ``python -m tests.conformance.kafka_tools`` runs everything and prints what differs.
"""
