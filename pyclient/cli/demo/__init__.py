"""`pyclient demo`: real input through producer, broker, consumer group and Spark, while `Killing` kills brokers.

`command.py` runs the steps, and a `Report` shows what each of them did.
"""
