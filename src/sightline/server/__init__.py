"""Serve a collection: an HTTP API and a web page."""
