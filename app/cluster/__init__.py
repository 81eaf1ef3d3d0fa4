"""Who owns what: the catalog of topics, and the ids that must never be given twice. Moves no data."""
