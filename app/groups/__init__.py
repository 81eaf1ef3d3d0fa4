"""Consumer groups: who reads what, and how far. Kafka's classic group protocol, for every door.

In reading order: ``group`` (one group, a pure state machine), ``messages`` (what
is asked and answered), ``live_group`` (who waits, and for how long; with
``parking`` and ``timers``), ``offsets`` (what was committed), ``writer`` (the
way to the store), ``coordinator`` (all that a door may call).
"""
