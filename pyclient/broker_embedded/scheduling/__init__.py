"""The time of a node (`Timers`), periodic tasks (`Upkeep`), and long work in slices (`RequestSlices`, `Background`)."""
