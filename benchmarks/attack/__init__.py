"""Attack a server, and report how many attacks were tried and how many were survived."""
