"""The binary protocol's door: ``protocol`` cuts and orders, ``handlers`` answer."""
