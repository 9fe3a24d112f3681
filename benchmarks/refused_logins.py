"""Compare the time of a refused login of a known user, whose password is wrong, with that of an unknown user.

`python -m benchmarks.refused_logins [--count 400]`

The two take turns in random order, each on a connection of its own, to the embedded broker in a process of its own
that does not delay refusals. For each mechanism: the quartiles, and the chance that a login of a known user takes
longer than one of an unknown user, with its z-score (rank-sum test): beyond 2 or 3 a client could distinguish them.
"""

from __future__ import annotations

import argparse
import random
import secrets
import time
from statistics import quantiles
from typing import Final

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import SaslAuthenticationFailed
from pyclient.net.sasl import scram
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker_embedded.conftest import RawClient

USERS: Final = {f"user{number:02}": "a-password" for number in range(20)}
KINDS: Final = {"known": "user", "unknown": "none"}
"""The prefix of the names of each kind of user."""
_SIZES: Final = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}
"""Bytes of a salted password."""
_WARMING: Final = 20


def refuse(servers: str, mechanism: str, user: str) -> float:
    """Log in with a wrong password; return the microseconds until the refusal, without the client's own work."""
    client = RawClient(servers)
    spent = 0.0

    def send(message: bytes) -> SaslAuthenticateResponse:
        nonlocal spent
        began = time.perf_counter()
        answer: SaslAuthenticateResponse = client.call(SaslAuthenticateRequest(auth_bytes=message), 2)
        spent += time.perf_counter() - began
        return answer

    client.call(SaslHandshakeRequest(mechanism=mechanism), 1)
    if mechanism == "PLAIN":
        last = send(b"\0%s\0wrong-word" % user.encode())
    else:
        first = scram.ClientFirst.of(user, secrets.token_urlsafe(24))
        challenge = bytes(send(first.encode()).auth_bytes)
        nonce = scram.ServerFirst.decode(challenge).nonce
        proof, _ = scram.client_final(mechanism, bytes(_SIZES[mechanism]), first, challenge, nonce)
        last = send(proof)
    client.close()
    if last.error_code != SaslAuthenticationFailed.code:
        raise RuntimeError(f"{mechanism}: {user} was answered with {last!r}")
    return spent * 1e6


def show(mechanism: str, taken: dict[str, list[float]]) -> None:
    """Print the figures of one mechanism."""
    print(mechanism)
    for kind, each in taken.items():
        low, middle, high = quantiles(each, n=4)
        print(f"  {kind} user: median {middle:.0f} us, quartiles {low:.0f} to {high:.0f} us")
    known, unknown = taken.values()
    longer = sum((one > other) + (one == other) / 2 for one in known for other in unknown) / len(known) / len(unknown)
    deviation = float(((len(known) + len(unknown) + 1) / 12 / len(known) / len(unknown)) ** 0.5)
    print(f"  the known user takes longer with a chance of {longer:.3f}, z = {(longer - 0.5) / deviation:.2f}")


def main() -> None:
    """Print the figures of PLAIN and SCRAM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=400, help="logins of each kind of user")
    count = parser.parse_args().count
    config = {"connection.failed.authentication.delay.ms": "0"}
    with EmbeddedCluster(processes=True, security="SASL_PLAINTEXT", users=USERS, config=config) as cluster:
        for mechanism in ("PLAIN", *_SIZES):
            taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for number in range(-_WARMING, count):
                for kind in random.sample(tuple(KINDS), 2):
                    user = f"{KINDS[kind]}{number % len(USERS):02}"
                    spent = refuse(cluster.bootstrap_servers, mechanism, user)
                    if number >= 0:
                        taken[kind].append(spent)
            show(mechanism, taken)


if __name__ == "__main__":
    main()
