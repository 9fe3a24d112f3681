"""pyclient compared with other clients, in one run, as ratios: absolute times of a shared machine are unreliable."""
