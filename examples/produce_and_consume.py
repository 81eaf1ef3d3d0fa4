"""Store JSON values in batches, and read them from the beginning."""

from stele import Client, Consumer, Producer
from stele.serializers import json_deserializer, json_serializer

with Client() as client:
    with Producer(client, "measurements", serializer=json_serializer, linger_ms=5) as producer:
        for number in range(1000):
            producer.send({"sensor": number % 7, "value": number / 10}, key=f"sensor-{number % 7}")
        # Raises ProduceError with the records that were not stored.
        producer.flush()
    with Consumer(client, "measurements", deserializer=json_deserializer, follow=False) as consumer:
        total = sum(record.value["value"] for record in consumer)
print(f"the sum of all values is {total:.1f}")
