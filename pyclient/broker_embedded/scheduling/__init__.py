"""The time of a node, and long tasks between its requests.

`Timers` call back on the node's loop by a clock that a test can set forward. `PeriodicTasks` are retention,
compaction, checkpoints and the close of idle connections. `RequestSlices` serves requests of many items in slices that
let others through, `BackgroundTasks` runs long tasks of the node itself in the same way.
"""
