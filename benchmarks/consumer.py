"""Consume: pyclient beside confluent-kafka, kafka-python and aiokafka. `python -m benchmarks.consumer`"""

from benchmarks.side_by_side import main

if __name__ == "__main__":
    main("consume")
