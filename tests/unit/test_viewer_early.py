"""The first frame: a signal ends the program as it should, whatever is made of it while modules are imported."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from hpcsampler.viewer import early


class Source:
    def wait(self, _seconds: float) -> dict[str, Any]:
        return {}


def test_a_signal_that_comes_out_as_another_error_still_ends_with_its_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(early, "_paint", lambda *_, **__: "frame")
    before = signal.getsignal(signal.SIGTERM)

    def killed_while_importing() -> None:
        with early.first_frame(Source(), None, patience_s=0, color=False):  # type: ignore[arg-type]
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except SystemExit:
                raise TypeError("expected a message argument") from None

    with pytest.raises(SystemExit) as ended:
        killed_while_importing()
    assert ended.value.code == 143
    assert capsys.readouterr().out.endswith(early._LEAVE)
    assert signal.getsignal(signal.SIGTERM) is before
