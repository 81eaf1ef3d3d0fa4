"""The TCP listeners.

``server`` accepts connections; ``connection`` moves bytes, out of ``request_cutter``,
``response_queue``, ``flow_control`` and ``connection_state``. ``binary`` speaks ADR-0009
and ADR-0010, ``kafka`` the Kafka wire protocol.
"""
