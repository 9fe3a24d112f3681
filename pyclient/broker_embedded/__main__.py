"""`python -m pyclient.broker_embedded`: a broker in the foreground; what `EmbeddedCluster(processes=True)` starts."""

from __future__ import annotations

import argparse
import sys

from pyclient.broker_embedded.cluster.foreground import serve
from pyclient.config.addresses import DEFAULT_HOST, DEFAULT_PORT
from pyclient.config.broker import PROFILES

__all__ = ["main", "serve"]


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and serve. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pyclient.broker_embedded", description="A Kafka broker.")
    parser.add_argument("--host", default=DEFAULT_HOST, help="the address to listen on")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="the port to listen on; 0 picks a free one")
    parser.add_argument("--data-dir", help="where the logs are kept; without it, a temporary directory")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="kafka", help="the defaults to start from")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a broker option by Kafka's name"
    )
    parser.add_argument("--as-version", metavar="RELEASE", help="the release of Kafka to look like, as in 3.9")
    parser.add_argument("--security", default="PLAINTEXT", help="PLAINTEXT, or SASL_PLAINTEXT with users")
    parser.add_argument("--cluster-id", metavar="ID", help="the id of the cluster that a new data directory belongs to")
    parser.add_argument(
        "--link", action="append", default=[], metavar="ADDRESS=ADDRESS", help="dial the second in place of the first"
    )
    parser.add_argument("--with-parent", action="store_true", help="end when standard input is closed")
    parser.add_argument("--control-port", type=int, help="serve the test user's controls there; 0 picks a free port")
    parser.add_argument("--control-host", default=DEFAULT_HOST, help="the address of the control port")
    parser.add_argument("--control-fd", type=int, help="serve the controls on this listening Unix socket")
    options = parser.parse_args(arguments)
    settings, links = _pairs(parser, "--set", options.set), _pairs(parser, "--link", options.link)
    return serve(
        host=options.host,
        port=options.port,
        data_dir=options.data_dir,
        profile=options.profile,
        settings=settings,
        as_version=options.as_version,
        cluster_id=options.cluster_id,
        security=options.security,
        links=links,
        with_parent=options.with_parent,
        control_port=options.control_port,
        control_host=options.control_host,
        control_fd=options.control_fd,
    )


def _pairs(parser: argparse.ArgumentParser, option: str, texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            parser.error(f"{option} {text}: it has to be KEY=VALUE")
        pairs[name.strip()] = value
    return pairs


if __name__ == "__main__":
    sys.exit(main())
