"""Topics, producers, produce and fetch; listeners call ``broker.Broker``."""
