"""The TCP listeners: ``server`` listens, ``connection`` moves bytes, ``binary`` speaks ADR-0009 and ADR-0010."""
