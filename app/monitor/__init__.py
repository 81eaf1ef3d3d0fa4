"""What the broker notes about itself, for the console, ``stele top`` and ``/metrics``.

In reading order: ``sampler`` (totals and sizes, at an interval),
``group_sampler`` (lag of consumer groups, all of them in turn), ``histories``
(what is kept of both for an hour), ``verifications`` (checks of the bytes of
partitions).
"""
