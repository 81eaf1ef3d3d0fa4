"""Store orders with a schema, then orders of a newer version, and read both as the newer one."""

from dataclasses import dataclass, field

from stele import Client, Consumer, IncompatibleSchemaError, Producer, SchemaRegistry

V1 = """{"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "string"}]}"""
V2 = """{"type": "record", "name": "Order", "fields": [
    {"name": "customer", "type": "string"},
    {"name": "items", "type": {"type": "array", "items": "string"}, "default": []}
]}"""
# Old orders have no price, and no default says what to read.
V3 = V2.replace("\n]", ',\n    {"name": "price", "type": "int"}\n]')


@dataclass
class Order:
    customer: str
    items: list[str] = field(default_factory=list)


with Client() as client, SchemaRegistry() as registry:
    for schema, value in ((V1, {"customer": "ada"}), (V2, Order("bob", ["chisel"]))):
        serializer = registry.serializer(schema, "orders-with-schema")
        with Producer(client, "orders-with-schema", serializer=serializer) as producer:
            producer.send(value)
    orders = registry.deserializer(Order, reader=V2)
    with Consumer(client, "orders-with-schema", deserializer=orders, follow=False) as consumer:
        for record in consumer:
            print(record.value)
    try:
        registry.serializer(V3, "orders-with-schema")
    except IncompatibleSchemaError:
        print("the third version is refused")
