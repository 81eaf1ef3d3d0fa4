"""The binary protocol's listener: ``protocol`` cuts and orders, ``handlers`` answer."""
