"""The broker. Imports point downward only: api, tcp → broker → cluster, storage → stele.wire."""
