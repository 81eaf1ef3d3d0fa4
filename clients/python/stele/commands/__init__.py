"""The commands of ``stele``, one file for each."""
