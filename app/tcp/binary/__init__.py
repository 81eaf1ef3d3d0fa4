"""The binary protocol's listener (ADR-0009, ADR-0010): ``connection``, ``dispatch``, one handler per message."""
