"""Attacks on a server and on bundles; reports how many were tried and how many were survived."""
