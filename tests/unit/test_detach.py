"""Starting a program that is no child."""

from __future__ import annotations

from .test_ring import run


def test_a_detached_program_is_no_child() -> None:
    run("""
        from hpcsampler.ext import _detach
        r, w = os.pipe()
        os.environ["X"] = "1"
        script = 'sleep 0.1; echo "$A $$ $(ps -o ppid= -p $$)"'
        _detach.start_detached(["/bin/sh", "-c", script], {"A": "b", "PATH": os.environ["PATH"]}, w)
        os.close(w)
        try: os.waitpid(-1, 0); raise SystemExit("it was a child")
        except ChildProcessError: pass
        name, pid, parent = os.read(r, 100).split()
        assert name == b"b" and int(parent) != os.getpid()
        try: _detach.start_detached(["/no/such/program"], {}, 1); raise SystemExit("no error")
        except FileNotFoundError: pass
    """)
