"""The Kafka wire protocol's listener: ``connection``, ``dispatch``, one schema and one handler per API."""
