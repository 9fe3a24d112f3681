"""The options of brokers, topics and groups: `BrokerConfig` checks what is set, the tables name the options."""
