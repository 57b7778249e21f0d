"""The cache of compiled code, when many share it and when its folder fails.

Here a function that is decorated anew stands for the same function in another process.
"""

import errno
import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import forks
import pytest
from numba.core import event

import fastmf
from fastmf._jit import cache, library
from fastmf._jit.kernel import kernel

PACKAGE = Path(fastmf.__file__).parent


def twice(x):
    return 2 * x


def use(value=3):
    """Result of a function that this process has not yet loaded, and whether it was kept."""
    function = kernel(twice)
    return function(value), sum(function.stats.cache_hits.values())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / "cache"
    path.mkdir()
    monkeypatch.setattr(cache, "folder", lambda: path)
    return path


def names(folder):
    """Suffixes of the files in a folder: of code, of what is being written."""
    return sorted(path.suffix for path in folder.iterdir())


# --- one process after another --------------------------------------------------------------------


def test_what_was_compiled_is_loaded(folder):
    assert use() == (6, 0)
    assert names(folder) == [".nbc"]
    assert use() == (6, 1)
    assert use(1.5) == (3.0, 0)  # another type
    assert names(folder) == [".nbc", ".nbc"]


def digested(content):
    return cache._digest(content) + content


@pytest.mark.parametrize("damage", [
    lambda content: b"", lambda content: content[:-1],
    lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    lambda content: bytes(cache.DIGEST_BYTES) + content[cache.DIGEST_BYTES :],
    lambda content: digested(b"cno_such_module\nname\n."),
    lambda content: digested(pickle.dumps((1, 2))),
])  # fmt: skip
def test_a_damaged_file_is_replaced(folder, damage):
    use()
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert use() == (6, 0)
    assert use() == (6, 1)
    assert names(folder) == [".nbc"]


def interrupt(*args, **options):
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["_rebuild", "_reduce"])
def test_an_interrupt_in_reading_or_writing_leaves_nothing(folder, monkeypatch, where):
    if where == "_rebuild":
        use()
    with monkeypatch.context() as patch:
        patch.setattr(cache.CompileResult, where, interrupt)
        with pytest.raises(KeyboardInterrupt):
            use()
    assert names(folder) == ([".nbc"] if where == "_rebuild" else [])
    assert use()[0] == 6


@pytest.fixture
def read_only(monkeypatch):
    """A function that makes all writing fail, as root is not kept from it by permissions."""

    def make():
        def refuse(self, *args, **options):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

        for name in ("mkdir", "write_bytes", "replace", "unlink", "touch"):
            monkeypatch.setattr(Path, name, refuse)
        monkeypatch.setattr(os, "utime", refuse)
        monkeypatch.setattr(cache.tempfile, "TemporaryFile", refuse)

    return make


def test_a_folder_that_becomes_read_only(folder, read_only):
    use()
    read_only()
    assert use() == (6, 1)
    assert use(1.5) == (3.0, 0)
    assert names(folder) == [".nbc"]


def test_a_read_only_folder_serves_if_there_is_code_in_it(tmp_path, monkeypatch, read_only):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    folder = cache.folder.__wrapped__()
    assert folder.parent == tmp_path / "fastmf"
    read_only()
    assert cache.folder.__wrapped__() is None
    os.close(os.open(folder / "code.nbc", os.O_CREAT | os.O_WRONLY))
    assert cache.folder.__wrapped__() == folder


def test_a_full_disk_leaves_nothing_half_written(folder, monkeypatch):
    def write_some(self, content):
        with open(self, "wb") as file:
            file.write(content[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_some)
    assert use() == (6, 0)
    assert names(folder) == []


def test_a_folder_that_is_removed_is_made_again(folder):
    use()
    shutil.rmtree(folder)
    assert use() == (6, 0)
    assert names(folder) == [".nbc"]


def test_a_folder_that_is_removed_while_code_is_compiled(folder):
    class Remove(event.Listener):
        def on_start(self, event):
            shutil.rmtree(folder)

        def on_end(self, event):
            pass

    with event.install_listener("numba:compile", Remove()):
        assert use() == (6, 0)
    assert use() == (6, 1)
    assert names(folder) == [".nbc"]


# --- one folder for each user ---------------------------------------------------------------------


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A temporary folder, beside a folder of the user that cannot be made."""
    (tmp_path / "file").write_text("in which no folder can be made")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


def test_the_cache_goes_elsewhere_where_home_cannot_be_written(temporary, monkeypatch):
    assert cache.folder.__wrapped__().is_relative_to(temporary)

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delattr(os, "getuid", raising=False)
    assert cache.folder.__wrapped__().is_relative_to(temporary)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has a temporary folder per user")
def test_a_temporary_folder_of_another_user_is_not_trusted(temporary, monkeypatch):
    (temporary / "fastmf-12345").mkdir()  # made by whom we are, not by 12345
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert cache.folder.__wrapped__() is None


def test_without_any_folder_nothing_is_kept_and_all_still_works(monkeypatch):
    monkeypatch.setattr(cache, "folder", lambda: None)
    assert use() == use() == (6, 0)


def test_folders_unused_for_a_month_are_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    old, recent = (tmp_path / "fastmf" / name for name in ("old", "recent"))
    for path in (old, recent):
        path.mkdir(parents=True)
    month_ago = old.stat().st_mtime - 31 * 86400
    os.utime(old, (month_ago, month_ago))
    assert cache.folder.__wrapped__().parent == old.parent
    assert not old.exists() and recent.exists()


# --- one folder for each version ------------------------------------------------------------------


def test_the_folder_follows_the_text_of_the_sources(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    folders = []
    for place, text in ("first", "x = 1"), ("second", "x = 2"), ("third", "x = 1"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "a.py").write_text(text)
        digest = library.digest_of_sources(tmp_path / place)
        monkeypatch.setattr(cache, "digest_of_sources", lambda digest=digest: digest)
        folders.append(cache.folder.__wrapped__())
    assert folders[0] == folders[2] != folders[1]


def test_code_of_sources_that_cannot_be_read_is_not_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "sources", lambda package: {"a.py": tmp_path / "a.py"})
    assert cache.folder.__wrapped__() is None
    monkeypatch.setattr(library, "sources", lambda package: {})
    assert cache.folder.__wrapped__() is None


@pytest.mark.parametrize("name", ["OPT", "LOOP_VECTORIZE"])
def test_code_of_other_settings_of_numba_is_not_loaded(folder, monkeypatch, name):
    assert use() == (6, 0)
    monkeypatch.setenv(f"NUMBA_{name}", "1" if name != "LOOP_VECTORIZE" else "0")
    assert use() == (6, 0)
    assert use() == (6, 1)
    monkeypatch.delenv(f"NUMBA_{name}")
    assert use() == (6, 1)
    assert names(folder) == [".nbc", ".nbc"]


def test_code_of_another_processor_is_not_loaded(folder, monkeypatch):
    assert use() == (6, 0)
    # The settings may make Numba compile for the same processor on different machines.
    monkeypatch.setattr(cache, "_PROCESSOR", "+another")
    assert use() == (6, 0)


# --- many at once ---------------------------------------------------------------------------------


def test_threads_that_call_at_once(folder):
    function, results = kernel(twice), []
    threads = [threading.Thread(target=lambda: results.append(function(3))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [6] * 8
    assert names(folder) == [".nbc"]


MODULE = """
from fastmf._jit.kernel import kernel

@kernel
def double(x):
    return 2 * x

@kernel
def power(x, n):
    result = x
    for _ in range(n):
        result = double(result)
    return result

def run():
    return power(3, 4)
"""

TAP = """
import numpy as np, fastmf as mf
mf.tap

def run():
    model = mf.RBM(np.ones((4, 3)), mf.Bernoulli(np.zeros(4)), mf.Bernoulli(np.zeros(3)))
    return float(mf.tap(model).log_partition)
"""

# Solves from the cache, then compiles a function.
LOADED = """
import sys
import numpy as np, numba
from module import run

run()
print("numba.typed.typeddict" in sys.modules)
print(numba.njit(lambda x: np.linalg.det(x))(2.0 * np.eye(2)))
print("numba.typed.typeddict" in sys.modules)
"""


@pytest.mark.slow
def test_loading_imports_nothing_that_only_compilation_needs(tmp_path):
    here = {}
    exec(TAP, here)
    here["run"]()  # which leaves the code in the cache that the processes of this run share
    (tmp_path / "module.py").write_text(TAP)
    environment = {**os.environ, "FASTMF_QUIET": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), str(tmp_path)])
    done = forks.python(LOADED, out=tmp_path, environment=environment, compiled=False)
    assert done.stdout == "False\n4.0\nTrue\n", done.stderr


@pytest.mark.slow
def test_processes_on_an_empty_cache(tmp_path):
    (tmp_path / "module.py").write_text(MODULE)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "FASTMF_QUIET": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), str(tmp_path)])
    command = [sys.executable, "-c", "import module; print(module.run())"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=environment, **pipes) for _ in range(6)]
    assert [process.communicate() for process in processes] == [("48\n", "")] * 6
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert [path.suffix for path in files] == [".nbc"] * 2
