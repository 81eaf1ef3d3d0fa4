"""Copies in a Kafka cluster: a producer that never writes a record twice, and no other ones.

- ``batches``      what is sent for the batches of this broker, and what has no equal offsets
- ``translation``  which offsets records have in the target, if not the same ones
- ``writes``       what a mirror asks of its target, as plain values
- ``groups``       groups that have had members there
- ``target``       the partitions of the target
"""
