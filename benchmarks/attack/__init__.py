"""Attack a server and bundles, and report how many attacks were tried and how many were survived."""
