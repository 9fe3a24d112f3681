"""The package's version, in a module that imports nothing: connections tell it to brokers."""

__version__ = "0.1.0"
