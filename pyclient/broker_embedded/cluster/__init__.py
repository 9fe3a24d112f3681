"""`EmbeddedCluster`: brokers in threads or processes, started and controlled by a test or a program."""
