"""The version of the package, in a module without imports, so that connections can name it to brokers."""

__version__ = "0.1.0"
