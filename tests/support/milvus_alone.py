"""A Milvus server in a network of its own, with a Unix socket as its only door: a program, started by servers.py.

Milvus listens at every address of the machine, whatever its settings say. In its own network namespace there is only
loopback, so nobody else can reach it, and its ports are free even if another test runs a second server.
"""

import contextlib
import fcntl
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable

SIOCSIFFLAGS = 0x8914
IFF_UP = 1


def raise_loopback() -> None:
    """Switch the loopback device on; a new network has it switched off."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", IFF_UP, b""))


def relay(
    listener: socket.socket, connect: Callable[[], socket.socket], opened: list[socket.socket] | None = None
) -> None:
    """Give each connection that the listener accepts one of its own elsewhere, until the listener is shut down.

    The connections that are accepted are added to `opened`.
    """
    while True:
        try:
            outer, _ = listener.accept()
        except OSError:
            return
        try:
            inner = connect()
        except OSError:
            outer.close()
            continue
        if opened is not None:
            opened.append(outer)
        threading.Thread(target=join, args=(outer, inner), daemon=True).start()


def join(outer: socket.socket, inner: socket.socket) -> None:
    """Copy bytes both ways between two connections, until either closes."""
    with outer, inner:
        back = threading.Thread(target=copy, args=(inner, outer), daemon=True)
        back.start()
        copy(outer, inner)
        back.join()


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes one way, then close both directions of both."""
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def main() -> None:
    from milvus import MilvusServer, MilvusServerConfig

    data, door = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    raise_loopback()
    server = MilvusServer(MilvusServerConfig(data_dir=data))
    server.config.set("authorization_enabled", val=True)
    server.start()
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(door)
            listener.listen()
            print("ready", flush=True)
            relay(listener, lambda: socket.create_connection(("127.0.0.1", server.listen_port)))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
