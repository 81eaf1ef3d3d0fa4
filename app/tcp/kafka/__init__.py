"""The Kafka wire protocol: schemas, codecs and one handler an API."""
