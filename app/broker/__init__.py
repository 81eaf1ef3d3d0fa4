"""Topics, partitions, produce, fetch, producers: all that a door may call is ``broker.Broker``."""
