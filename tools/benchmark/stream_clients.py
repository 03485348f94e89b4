"""Opens a number of streams of an exporter's live page and reads them until standard input is closed.

A program of its own, so that it does not compete with the scraper for Python's lock. It prints a line when
every stream has its first message, and at the end the number of messages of each stream.
"""

import selectors
import socket
import sys

REQUEST = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
MESSAGE = b"event: snapshot"


def main(port: int, number: int) -> None:
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    messages: dict[socket.socket, int] = {}
    for _ in range(number):
        client = socket.create_connection(("127.0.0.1", port), timeout=20)
        client.sendall(REQUEST)
        messages[client] = 0
        selector.register(client, selectors.EVENT_READ)
    waiting = set(messages)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                print(*messages.values(), flush=True)
                return
            client = key.fileobj  # type: ignore[assignment]  # the others are sockets
            data = client.recv(1 << 20)
            if not data:
                raise SystemExit("the exporter has closed a stream")
            messages[client] += data.count(MESSAGE)
            if waiting and messages[client]:
                waiting.discard(client)
                if not waiting:
                    print("connected", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
