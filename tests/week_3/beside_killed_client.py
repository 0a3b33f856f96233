"""A client in a process of its own: it asks for a stream, says so when the first piece comes, and reads on.

    python beside_killed_client.py ADDRESS METHOD REQUEST

METHOD is the full name of the call, REQUEST the bytes of its message in hexadecimal digits.
"""

from __future__ import annotations

import sys

import grpc


def main(address: str, method: str, request: str) -> None:
    with grpc.insecure_channel(address) as channel:
        for _ in channel.unary_stream(method, None, None)(bytes.fromhex(request)):
            print("a piece", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
