import sys

from new_kernels import compile_for

from fastmf._jit import messages
from fastmf.learning.training.progress import progress


def test_lines_and_silence(capsys, monkeypatch):
    monkeypatch.setattr(messages, "SILENT_SECONDS", 0.05)
    monkeypatch.delenv("FASTMF_QUIET")
    messages._WATCH.start_anew()
    with progress(10, 0, 1) as bar:
        compile_for(0.2)
        compile_for(0.2)
        bar.update()
    assert capsys.readouterr().err.count("fastmf: compiling kernels for") == 1
    monkeypatch.setitem(sys.modules, "tqdm", None)
    for verbose, lines in ((1, "epoch 1\n"), (0, "")):
        with progress(10, 0, verbose) as bar:
            bar.update()
            bar.set_postfix_str("epoch 1")
        assert capsys.readouterr().err == lines
