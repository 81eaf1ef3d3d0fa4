"""The catalog and the group store; record data is in ``storage``."""
