"""Replace a client's sockets in a forked child, so that it cannot disturb its parent's connections.

A child inherits every connection of its parent. An event loop that keeps running there, or that asyncio shuts down at
exit, would write to them, read responses meant for the parent, and remove them from the parent's loop, since the
kernel shares an epoll instance's list of descriptors between the two.
"""

from __future__ import annotations

import atexit
import os
import socket
import weakref

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def isolate_after_fork(sock: socket.socket) -> None:
    """In every child forked from now on, replace this socket's descriptor with one that is always idle."""
    _sockets.add(sock)


def _replace_in_child() -> None:
    inherited = [sock for sock in list(_sockets) if sock.fileno() >= 0]
    if not inherited:
        return
    idle, peer = socket.socketpair()
    idle.setblocking(False)
    for sock in inherited:
        os.dup2(idle.fileno(), sock.fileno(), inheritable=False)
    idle.close()
    peer.detach()  # left open, otherwise the replaced sockets would read an end of file
    atexit.register(_detach, inherited)  # not before: the loop may still be woken for one of these descriptors


def _detach(inherited: list[socket.socket]) -> None:
    for sock in inherited:
        sock.detach()  # avoids a ResourceWarning about an unclosed socket


os.register_at_fork(after_in_child=_replace_in_child)
