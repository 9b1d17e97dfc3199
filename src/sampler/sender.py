"""The one thread that the sampler adds to a rank: it drains the ring, packs and sends, a few times a second."""

from __future__ import annotations

import _thread
import os
import secrets
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

import zmq

from .._version import __version__
from ..errors import HpcsamplerError
from ..ext import _events
from ..launch import ensure_daemon
from ..protocol import control, messages
from .stacks import stacks

if TYPE_CHECKING:
    from ..protocol.identity import Identity
    from ..runtime import RuntimeDirectory
    from ..settings import Settings
    from .hooks import HookSet
    from .names import Names

_HELLO_S = 4.0
_HIGH_WATER = 64
"""Messages that may wait in the socket; beyond, events wait in the ring, and there the newest are dropped."""
_LOST_S = 1.5
"""Without a connection for so long, the daemon is looked for and, if it is gone, started again."""
_QUESTIONS_MOST = 8
"""Questions that are answered at a time, so that whoever floods the rank with them does not keep its events."""
_LAST_WAIT_MS = 80
"""How long the end waits for a connection, and half of that for the last messages to leave."""
_BACK_OFF_MOST_S = 60.0
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
"""Signals of a thread's own making."""


class Sender:
    """Sends this process's events until it is stopped. Nothing of it runs on the training's threads."""

    def __init__(
        self,
        identity: Identity,
        program: str,
        directory: RuntimeDirectory,
        settings: Settings,
        names: Names,
        hooks: HookSet,
        event_cost_ns: float,
    ) -> None:
        self._identity = identity
        self._program = program
        self._directory = directory
        self._settings = settings
        self._names = names
        self._hooks = hooks
        self.rank_key = secrets.token_hex(8)
        self._attach_ns = _events.now_ns()
        self._courier = _events.Courier(messages.events_prefix(self.rank_key), event_cost_ns)
        names.on_new = hooks.incidents.on_new = self._courier.call
        hooks.incidents.clear()
        self._next_hello_s = 0.0
        self._stop_reason = ""
        self._daemon_trouble = False
        self._ended = threading.Event()

    def start(self) -> None:
        """Start the thread. It takes no signals: those that the program blocks to wait for would find it open."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
        try:
            # None of `threading`'s: a program that joins all threads that it finds there would wait for ever, and one
            # that traces or profiles them would trace this one.
            _thread.start_new_thread(self._run, ())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self, reason: str, wait_s: float) -> None:
        """Let what is recorded leave, and end the thread; gives up waiting after `wait_s` seconds."""
        self._stop_reason = reason
        _events.wake()
        self._ended.wait(wait_s)

    # ---- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._send_until_stopped()
        except Exception as error:  # noqa: BLE001 - a sampler that fails goes quiet
            _events.record(False)
            if not self._stop_reason:
                print(f"hpcsampler stops sampling this process: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            self._ended.set()

    def _send_until_stopped(self) -> None:
        settings = self._settings
        starts_daemon = settings.daemon == "auto"
        if starts_daemon:
            self._ensure_daemon(5.0)
        context = zmq.Context()
        dealer = context.socket(zmq.DEALER)
        try:
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.setsockopt(zmq.SNDHWM, _HIGH_WATER)
            dealer.setsockopt(zmq.RCVHWM, _QUESTIONS_MOST)
            dealer.setsockopt(zmq.MAXMSGSIZE, control.MAX_REQUEST_BYTES)
            # Without a daemon a message must not wait in a queue that nobody will read: it stays in the ring.
            dealer.setsockopt(zmq.IMMEDIATE, 1)
            dealer.setsockopt(zmq.RECONNECT_IVL, 200)
            dealer.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
            dealer.connect(
                settings.daemon if settings.daemon.startswith("ipc://") else self._directory.events_address,
            )
            self._bind(dealer)
            self._carry(dealer, starts_daemon=starts_daemon)
            # A program that has run for a moment only may not be connected yet.
            if dealer.poll(_LAST_WAIT_MS, zmq.POLLOUT):
                self._courier.sign()  # the time until here, also without events
                self._flush(dealer, time.monotonic())
                self._send(dealer, messages.Bye(self.rank_key, self._courier.next_sequence(), self._stop_reason))
        finally:
            # A daemon that hangs must not hold up the exit.
            context.destroy(linger=_LAST_WAIT_MS // 2)

    def _ensure_daemon(self, wait_s: float) -> None:
        try:
            ensure_daemon(self._directory, linger_s=self._settings.linger_s, wait_s=wait_s)
        except (HpcsamplerError, OSError) as error:
            # Events wait in the ring for a daemon that somebody else may start.
            if not self._daemon_trouble and not self._stop_reason:
                print(f"hpcsampler can't start its daemon: {error}", file=sys.stderr)
            self._daemon_trouble = True

    def _bind(self, dealer: zmq.Socket[bytes]) -> None:
        """Let the courier send without Python, where pyzmq's own libzmq can be reached. Elsewhere `_flush` sends."""
        backend = getattr(sys.modules.get("zmq.backend.cython._zmq"), "__file__", None)
        if backend:
            self._courier.bind(backend, dealer.underlying)

    def _carry(self, dealer: zmq.Socket[bytes], *, starts_daemon: bool) -> None:
        """Send until stopped; a daemon that is gone is looked for, and started again if that is ours to do."""
        every_s = self._settings.flush_ms / 1000
        lost_since: float | None = None
        back_off_s = 1.0
        while not self._stop_reason:
            now = time.monotonic()
            if _writable(dealer):
                lost_since, back_off_s = None, 1.0
                self._flush(dealer, now)
            elif lost_since is None:
                lost_since = now
                self._next_hello_s = 0.0  # whoever answers next may be a new daemon
            elif starts_daemon and now - lost_since > max(_LOST_S, back_off_s):
                back_off_s = min(back_off_s * 2, _BACK_OFF_MOST_S)
                lost_since = now
                self._ensure_daemon(2.0)
            self._answer(dealer)
            self._courier.carry(every_s, max(every_s, self._next_hello_s - now))

    def _flush(self, dealer: zmq.Socket[bytes], now: float) -> None:
        """Send what there is: who we are every few seconds, new names, and then the events that use them."""
        if now >= self._next_hello_s:
            self._hooks.announce_roles()
            if self._send(dealer, self._hello()):
                self._next_hello_s = now + _HELLO_S
                self._names.news = True
                self._send_pipeline(dealer)
        if self._names.news and not self._send(
            dealer, messages.Names(self.rank_key, self._courier.next_sequence(), *self._names.announced()),
        ):
            self._names.news = True
        while items := self._hooks.incidents.take():
            if not self._send(dealer, messages.Incidents(self.rank_key, self._courier.next_sequence(), items)):
                self._hooks.incidents.put_back(items)
                break
        for _ in range(_HIGH_WATER):
            packed = self._courier.pack()
            if not packed:
                return
            try:
                dealer.send(packed, zmq.DONTWAIT)
            except zmq.Again:
                self._courier.lose()
                return

    def _answer(self, dealer: zmq.Socket[bytes]) -> None:
        """Say what the daemon asks. Nothing that it sends is done; what is no question is passed over."""
        for _ in range(_QUESTIONS_MOST):
            try:
                request = control.decode_request(dealer.recv(zmq.DONTWAIT))
            except zmq.Again:
                return
            except messages.ProtocolError:
                continue
            text = stacks(threading.get_ident())
            self._send(
                dealer, messages.Stacks(self.rank_key, self._courier.next_sequence(), request.request, text),
            )

    def _send_pipeline(self, dealer: zmq.Socket[bytes]) -> None:
        """Send the stages of the input pipeline. Not at the end: there is no time to read them then."""
        reader = self._hooks.pipeline
        reading = reader.read() if reader is not None and not self._stop_reason else None
        if reading is not None:
            self._send(dealer, messages.Pipeline(self.rank_key, self._courier.next_sequence(), *reading))

    @staticmethod
    def _send(dealer: zmq.Socket[bytes], message: messages.Message) -> bool:
        try:
            dealer.send(messages.encode(message), zmq.DONTWAIT)
        except zmq.Again:
            return False
        return True

    def _hello(self) -> messages.Hello:
        identity = self._identity
        return messages.Hello(
            rank_key=self.rank_key,
            seq=self._courier.next_sequence(),
            pid=os.getpid(),
            start_ticks=_start_ticks(),
            uid=os.getuid(),
            host=socket.gethostname(),
            job=identity.job,
            rank=identity.rank,
            local_rank=identity.local_rank,
            world_size=identity.world_size,
            program=self._program[: messages.MAX_TEXT],
            framework=self._hooks.framework(),
            version=__version__,
            attach_ns=self._attach_ns,
            monotonic_ns=time.monotonic_ns(),
            realtime_ns=time.time_ns(),
            visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES", "")[: messages.MAX_TEXT],
            notes=self._hooks.problems[:16],
        )


def _writable(dealer: zmq.Socket[bytes]) -> bool:
    """Whether a daemon is connected and takes more."""
    # Not `poll`: it makes a poller for each call.
    events: int = dealer.getsockopt(zmq.EVENTS)  # type: ignore[assignment] # of this option, an int
    return bool(events & zmq.POLLOUT)


def _start_ticks() -> int:
    """When this process started, in clock ticks since boot: field 22 of /proc/self/stat; 0 where that is closed."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - pathlib is slower
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
