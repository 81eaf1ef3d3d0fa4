"""The listener of the schema registry: Confluent's API over ``app.registry``. Reading order:

- ``errors``, ``bodies``, ``answers``   what is answered in place of problem documents; JSON of requests and responses
- ``rights``                   required rights per route
- ``routing``                  routes with the media types of the API, and their parameters
- ``routes``                   one module per subject
- ``application``, ``server``   the FastAPI application, and its server

The HTTP server, the logins, the limits and the declaration of routes are those of the HTTP listener. Another API is
behind them, with rules that its clients know: what a query has besides is ignored, names have media types of their own,
and an error is a number and a sentence. The HTTP listener mounts the same routes for the console.
"""
