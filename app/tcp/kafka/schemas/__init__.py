"""Requests and responses of the APIs in all versions, as declarations: one file per subject."""
