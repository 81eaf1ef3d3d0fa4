"""Loading a partition at a start. Reading order:

- ``checkpoint``       small text files: offsets and leader epochs
- ``unclean_start``    what an unclean start keeps and cuts
- ``producer_state_replay``, ``transaction_rebuild``   rebuilds producers and transactions
- ``loader``           all of it for one partition
"""
