"""`make bench`: the client benchmarks, one after the other; arguments go to both."""

from benchmarks.side_by_side import main

if __name__ == "__main__":
    main("produce")
    main("consume")
