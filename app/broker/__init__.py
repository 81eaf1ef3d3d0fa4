"""Topics, partitions, produce, fetch, producers: all that a listener may call is ``broker.Broker``."""
