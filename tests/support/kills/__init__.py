"""One broker that is killed again and again under load, on a disk that may be full, and everything read at the end.

- ``ledger``     what the broker has acknowledged, and what of it is missing
- ``producers``  clients of all protocols, which send what was not acknowledged again if they may
- ``readers``    a whole partition, as each protocol shows it
- ``run``        the kills, the full disk and the checks
"""
