"""`make bench`: the client benchmarks, one after the other; arguments that both know go to both."""

from benchmarks import consumer, producer

if __name__ == "__main__":
    producer.main()
    consumer.main()
