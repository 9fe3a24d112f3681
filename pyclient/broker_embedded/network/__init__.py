"""The listening socket, its connections and their quotas: `Listener`, `BrokerConnection`, `Admission`, `ByteQuotas`."""
