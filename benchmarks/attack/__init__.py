"""Attacks on a server and on bundles, which print how many were tried and how many were survived."""
