"""The warning about an unclosed socket says where it was made."""

import gc
import socket

import pytest


def make_and_lose() -> None:
    made = [socket.create_server(("127.0.0.1", 0))]
    made.append(made)  # type: ignore[arg-type]


def test_warning_about_unclosed_socket_says_where_it_was_made() -> None:
    with pytest.warns(ResourceWarning, match="unclosed <socket.*made in .*test_socket_origins.py.*make_and_lose"):
        make_and_lose()
        gc.collect()
