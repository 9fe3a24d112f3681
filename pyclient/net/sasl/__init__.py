"""SASL: a client authenticates on a new connection and again before its session ends (KIP-43, KIP-152, KIP-368).

`authentication` runs the exchange over a connection, `exchanges` has one per mechanism (PLAIN, SCRAM, OAUTHBEARER,
GSSAPI), `scram` the messages and keys of RFC 5802, which the broker shares, `oauth` keeps a client's token, and
`kerberos` gets tickets.
"""
