"""Tests of users: pytest fixtures of a broker and of topics (`plugin.py`), and a `ManualClock` that tests advance."""
