"""What several measurements share: each of them is a script beside this folder."""
