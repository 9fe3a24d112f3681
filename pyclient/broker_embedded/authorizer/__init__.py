"""Authorization: ACLs, the decision about a request (pure), and the rights that each API needs.

`StandardAuthorizer` decides as Kafka's does. `RIGHTS` says what is asked of it for each API.
"""
