"""Lets Spark find `format("pyclient")`: it looks for the class DefaultSource in modules named pyspark_*."""

from pyclient.spark.data_source import KafkaDataSource


class DefaultSource(KafkaDataSource):
    """The data source `pyclient`."""
