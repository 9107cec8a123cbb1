"""The device helper says where it ran."""

import torch

from posenc import device


def test_without_a_gpu_it_runs_small_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.real_size(on_gpu=8192, elsewhere=256) == (torch.device("cpu"), 256)
    assert "256 (small, for want of a GPU)" in capsys.readouterr().out


def test_with_a_gpu_it_runs_at_real_size(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A GPU")
    assert device.real_size(on_gpu=8192, elsewhere=256) == (torch.device("cuda"), 8192)
    assert capsys.readouterr().out == "A GPU: 8192 (real size)\n"
