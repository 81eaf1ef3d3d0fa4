"""Sample the state of the broker for the console, ``stele top`` and ``/metrics``.

In reading order: ``sampler`` (totals and sizes at an interval), ``group_sampler``
(lag of consumer groups, in rounds), ``histories`` (the samples of the last hour),
``verifications`` (checks of the bytes of partitions), ``loop_probe`` (how long the
event loop is held).
"""
