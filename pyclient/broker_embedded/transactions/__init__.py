"""The transaction coordinator: its state machine, its records in `__transaction_state`, markers, and verification.

`TransactionCoordinator` serves the handlers. A `Transaction` is the pure state machine of one transactional id; the
`BrokerRuntime` writes its records, and the `MarkerSender` the markers, through `InterBrokerRequests` to other leaders.
`VerifiedWrites` checks, before a batch begins a transaction in a partition, that the partition was added (KIP-890).
"""
