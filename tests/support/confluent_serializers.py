"""Serializers of confluent-kafka, without types: pyright does not see how their classes are constructed."""

from __future__ import annotations

from typing import Any

from confluent_kafka import schema_registry
from confluent_kafka.schema_registry import avro, json_schema, protobuf

AvroSerializer: Any = avro.AvroSerializer
AvroDeserializer: Any = avro.AvroDeserializer
JSONSerializer: Any = json_schema.JSONSerializer
JSONDeserializer: Any = json_schema.JSONDeserializer
ProtobufSerializer: Any = protobuf.ProtobufSerializer
ProtobufDeserializer: Any = protobuf.ProtobufDeserializer
header_schema_id_serializer: Any = vars(schema_registry)["header_schema_id_serializer"]
