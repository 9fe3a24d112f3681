"""Produce: pyclient beside confluent-kafka, kafka-python and aiokafka. `python -m benchmarks.producer`"""

from benchmarks.side_by_side import main

if __name__ == "__main__":
    main("produce")
