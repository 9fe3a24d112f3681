"""pyclient beside its peers, in one run, as ratios: absolute times of a shared machine lie."""
