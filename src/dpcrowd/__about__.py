"""The version, and nothing else: the build reads it here, and so does everything that tells it."""

__all__ = ["__version__"]

__version__ = "0.2.0.dev0"
