import sys

from new_kernels import compile_for

from fastmf._jit import messages
from fastmf.learning.training.progress import progress


def test_lines_and_silence(capsys, monkeypatch, caplog):
    monkeypatch.setattr(messages, "SILENT_SECONDS", 0.05)
    monkeypatch.delenv("FASTMF_QUIET")
    with progress(10, 0, 1, "spins") as bar:
        compile_for(0.2)
        compile_for(0.2)
        bar.update()
    assert capsys.readouterr().err.count("fastmf: compiling kernels for spins") == 1
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with progress(10, 0, 1, "spins") as bar:
        compile_for(0.2)
        bar.update()
        bar.set_postfix_str("epoch 1")
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("fastmf: compiling kernels for spins") and second == "epoch 1"
    caplog.clear()
    with caplog.at_level("INFO", "fastmf"), progress(10, 0, 0, "spins") as bar:
        compile_for(0.2)
        bar.update()
        bar.set_postfix_str("epoch 1")
    assert capsys.readouterr().err.count("\n") == 1  # of compilation only
    assert len(caplog.records) == 1
