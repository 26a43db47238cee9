"""What a GPU does in one go; each file needs torch and Triton, and nothing else in Sightline needs these."""
