"""Avro records with confluent-kafka and a schema registry.

``avro.py BOOTSTRAP REGISTRY TOPIC write SCHEMA RECORDS`` registers the schema and produces the records, a JSON list.
``avro.py BOOTSTRAP REGISTRY TOPIC read SCHEMA COUNT`` prints as JSON what it reads with ``SCHEMA`` from the start.
"""

from __future__ import annotations

import json
import sys
from typing import Any

TIMEOUT_S = 60.0


def main() -> None:
    bootstrap, registry_url, topic, mode, schema, argument = sys.argv[1:]
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    # Its types hide the arguments of its clients.
    make_client: Any = SchemaRegistryClient
    registry = make_client({"url": registry_url})
    context = SerializationContext(topic, MessageField.VALUE)
    if mode == "write":
        make_serializer: Any = AvroSerializer
        serialize = make_serializer(registry, schema)
        producer = Producer({"bootstrap.servers": bootstrap})
        for record in json.loads(argument):
            producer.produce(topic, serialize(record, context))
        if producer.flush(TIMEOUT_S):
            raise SystemExit("records were not acknowledged")
        return
    make_deserializer: Any = AvroDeserializer
    deserialize = make_deserializer(registry, schema)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "avro", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while len(found) < int(argument):
        message: Any = consumer.poll(TIMEOUT_S)
        if message is None or message.error():
            raise SystemExit(f"{len(found)} records were read, then: {message and message.error()}")
        found.append(deserialize(message.value(), context))
    consumer.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
