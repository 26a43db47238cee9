"""A collection as a service: an HTTP interface for programs, and a page for people."""
