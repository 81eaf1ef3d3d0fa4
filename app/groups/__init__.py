"""Consumer groups: who reads what, and how far. Kafka's classic group protocol, for every listener.

In reading order: ``group`` (one group, a pure state machine), ``messages`` (what
is asked and answered), ``live_group`` (who waits, and for how long; with
``parking``, ``answers`` and ``timers``), ``managed_members`` (members that the
broker joins for), ``offsets`` (the rules of a committed offset),
``group_offsets`` (those of one group), ``offset_retention`` (when they are
dropped), ``writer`` (the way to the store), ``coordinator`` (all that a listener may
call; ``group_context`` is what groups need of it).
"""
