"""Schemas of keys and values in a registry: a client of it, and serializers.

::

    with SchemaRegistry("http://127.0.0.1:8081") as registry:
        orders = registry.serializer(Order, "orders")
        with Producer(client, "orders", serializer=orders) as producer:
            producer.send(Order(customer="ada", items=["chisel"]))

The registry is that of Stele, or any with Confluent's API. Serializers learn the ids of their schemas
when they are made, so that serializing needs no request.

- ``definitions``                             a schema, and a version of a subject
- ``calls``                                   one request to the registry, and its answer
- ``frames``                                  which schema a key or value was written with
- ``codecs``                                  Python values ↔ the bytes of a schema
- ``serializer``                              values → framed bytes
- ``async_deserializer``, ``deserializer``    framed bytes → values
- ``async_registry``, ``registry``            the client
- ``discovery``                               the registry of a broker
"""
