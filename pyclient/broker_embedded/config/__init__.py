"""A broker's configuration: `BrokerConfig` checks what is set against the tables of pyclient.config.

It knows the profiles (`kafka`, `test`) and which options may change while the broker runs. `Listeners` has where the
node listens, and how clients log in there; `QuorumConfig` is a node's part in the metadata quorum. `loggers.py` has the
log levels that AlterConfigs sets.
"""
