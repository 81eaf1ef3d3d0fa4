"""Loading a partition at a start. Reading order:

- ``checkpoint``       small text files: offsets and leader epochs
- ``recovery``         what an unclean start keeps and cuts
- ``producer_state_replay``, ``transaction_rebuild``   rebuilds producers and transactions
- ``log_loader``       all of it for one partition
"""
