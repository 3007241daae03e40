"""Server: gives OpenIGTLink messages to any number of clients such as 3D Slicer. Each gets the newest it can take."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address

from scopereg.errors import ScopeRegError
from scopereg.live.exchange import Counters, Mailbox
from scopereg.live.link import Link, LinkLostError, Timing
from scopereg.live.messages import OK, Message, Status, require_pyigtl, status_message

PORT = 18944  # of OpenIGTLink
LOOPBACK = "127.0.0.1"
MOST_CLIENTS = 8
PROOF_BYTES = 2**21  # taken: more than two systems hold back for a program that reads nothing
_TICK_S = 0.25
_SIGN_OF_LIFE = "KeepAlive"


class Server:
    """Sends what it is given to all clients; a client that reads slowly misses some and holds up nobody.

    Messages that clients send go to `listener`, in the thread of the client. Where there is no room for one more, it
    takes the place of one that has not shown yet that somebody is there, the longest idle of the address that has most.
    Counters: `clients` (in all), `replaced`, `turned_away`, `sent`, `dropped` (updates that a slow client missed), and
    those of `Connection`.
    """

    def __init__(
        self,
        host: str = LOOPBACK,
        port: int = PORT,
        *,
        listener: Callable[[Message], None] | None = None,
        remote: bool = False,
        timing: Timing | None = None,
    ) -> None:
        """Listen on `port`, 0 for any that is free. Other machines are let in only with `remote`."""
        require_pyigtl()
        self.counters = Counters()
        self._listener = listener
        self._timing = timing or Timing()
        self._lock = threading.Lock()
        self._clients: list[_Client] = []  # also those that just left, until their threads have ended
        self._latest: bytes = b""
        self._stop = threading.Event()
        self._socket = _listen(host, port, remote)
        self._socket.settimeout(_TICK_S)
        self.host, self.port = self._socket.getsockname()[:2]
        self._thread = threading.Thread(target=self._run, name=f"scopereg-live-server-{self.port}", daemon=True)

    def start(self) -> Server:
        """Accept clients from now on."""
        self._thread.start()
        return self

    @property
    def client_count(self) -> int:
        """Clients that are connected now."""
        with self._lock:
            return sum(not client.ended for client in self._clients)

    def send(self, packed: Sequence[bytes]) -> None:
        """Give messages that belong together to every client; who connects later gets the last ones first."""
        joined = b"".join(packed)
        with self._lock:
            self._latest = joined
            clients = list(self._clients)
        for client in clients:
            if client.mailbox.put(joined):
                self.counters.add("dropped")

    def close(self) -> None:
        """Let all clients go and end all threads."""
        self._stop.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes who accepts, on some systems
        self._socket.close()
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            client.close()
        for client in clients:
            client.join()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                connected, address = self._socket.accept()
            except TimeoutError:
                continue
            except OSError as error:  # closed, or out of sockets: nothing to do but to wait
                if not self._stop.wait(_TICK_S):
                    self.counters.add("refused", error)
                continue
            self._welcome(connected, address[0], f"{address[0]}:{address[1]}")

    def _welcome(self, connected: socket.socket, address: str, name: str) -> None:
        if not self._make_room():
            self.counters.add("turned_away", f"{name} is one client too many")
            connected.close()
            return
        try:
            link = Link(connected, self.counters, self._timing)
        except OSError as error:  # it was reset before it was used
            connected.close()
            self.counters.add("lost", error)
            return
        client = _Client(link, address, name, self._timing, self.counters, self._tell)
        client.start()
        with self._lock:
            self._clients = [*(other for other in self._clients if other.alive), client]
            if self._latest:
                client.mailbox.put(self._latest)
        self.counters.add("clients")

    def _make_room(self) -> bool:
        """Whether there is room for one more client, made if need be. 3D Slicer says nothing: it shows by reading."""
        with self._lock:
            present = [client for client in self._clients if not client.ended]
        if len(present) < MOST_CLIENTS:
            return True
        count = Counter(client.address for client in present)
        idle = [client for client in present if not client.is_there]
        if not idle:
            return False
        max(idle, key=lambda client: count[client.address]).close()  # of several, the first that came
        self.counters.add("replaced")
        return True

    def _tell(self, message: Message) -> None:
        if self._listener is not None:
            try:
                self._listener(message)
            except Exception as error:  # one message must not end the connection
                self.counters.add("listener_errors", error)


class _Client:
    """One client: a thread that sends, a thread that receives."""

    def __init__(
        self,
        link: Link,
        address: str,
        name: str,
        timing: Timing,
        counters: Counters,
        tell: Callable[[Message], None],
    ) -> None:
        self.mailbox: Mailbox[bytes] = Mailbox()
        self._link, self._timing, self._counters = link, timing, counters
        self._tell = tell
        self.address = address
        self._taken = 0  # bytes
        self._heard = False
        self._stop = threading.Event()
        self._ending = threading.Lock()  # taken once, by whoever ends it
        roles = (("to", self._send), ("from", self._receive))
        self._threads = [
            threading.Thread(target=run, name=f"scopereg-live-{way}-{name}", daemon=True) for way, run in roles
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def ended(self) -> bool:
        return self._stop.is_set()

    @property
    def is_there(self) -> bool:
        """Whether a program has shown that it reads, or has said something."""
        return self._heard or self._taken > PROOF_BYTES

    @property
    def alive(self) -> bool:
        """Whether a thread of it still runs."""
        return any(thread.is_alive() for thread in self._threads)

    def close(self, error: LinkLostError | None = None) -> None:
        """Make both threads end; a connection that was lost is counted once."""
        if not self._ending.acquire(blocking=False):
            return
        self._stop.set()
        if error is not None:
            self._counters.add("lost", error)
        self.mailbox.close()
        self._link.end()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        try:
            while not self.ended:
                packed = self.mailbox.take(self._timing.keep_alive_s)
                if self.ended:
                    return
                self._link.send(packed or status_message(Status(OK, 0, "OK", ""), name=_SIGN_OF_LIFE))
                if packed:
                    self._counters.add("sent")
                    self._taken += len(packed)
        except LinkLostError as error:
            self.close(error)

    def _receive(self) -> None:
        try:
            while not self.ended:
                message = self._link.receive(_TICK_S)
                if message is None:
                    continue
                self._heard = True
                if message.kind == "GET_STATUS":
                    self._link.send(status_message(Status(OK, 0, "OK", ""), name=_SIGN_OF_LIFE))
                self._tell(message)
        except LinkLostError as error:
            self.close(error)
        finally:
            self._link.close()


def _listen(host: str, port: int, remote: bool) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ScopeRegError(f"the port is {port}", where="OpenIGTLink server", fix="choose one from 1024 to 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        if not remote and not ip_address(address[0]).is_loopback:
            raise ScopeRegError(
                f"{host} would let other machines in, and OpenIGTLink knows neither passwords nor encryption",
                where="OpenIGTLink server",
                fix=f"listen on {LOOPBACK}, or allow it (remote=True) in a network that you trust",
            )
        return socket.create_server(address[:2], family=family, backlog=MOST_CLIENTS)
    except OSError as error:
        raise ScopeRegError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            where="OpenIGTLink server",
            fix="choose another port, or end the program that uses it",
        ) from None
