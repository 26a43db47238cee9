"""Sightline finds images by words and words by images."""

__version__ = "0.1.0"
