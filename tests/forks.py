"""Programs in other processes: fresh ones, and forks of one that has made the slow imports.

Most of the time of a short program goes into imports of Numba and scikit-learn. One process imports
them and forks for each program, which then imports this package, with its own environment.
"""

import atexit
import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

# What this package imports.
IMPORTS = "numba", "scipy.linalg.cython_blas", "scipy.special"

SERVER = """
import importlib, json, os, sys, tempfile, traceback

requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
for name in sys.argv[1].split(","):
    importlib.import_module(name)
if json.loads(sys.argv[3]):
    sys.modules["numba"].njit(lambda x: x)(1)
    for name in [name for name in sys.modules if name.partition(".")[0] == "fastmf"]:
        del sys.modules[name]  # which Numba's entry point has imported
own_path = [entry for entry in sys.path[1:] if entry not in json.loads(sys.argv[2])]

def run(code, arguments, environment, folder, out):
    for number, name in enumerate(("stdout", "stderr"), 1):
        os.dup2(os.open(os.path.join(out, name), os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[:] = ["", *environment.get("PYTHONPATH", "").split(os.pathsep), *own_path]
    sys.argv[:] = ["-c", *arguments]
    if "numba" in sys.modules:
        sys.modules["numba"].core.config.reload_config()
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})

for line in requests:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run(**json.loads(line))
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
"""


def fresh(*arguments, folder=None, **variables):
    """Run Python in a process of its own, which finds this package and its tests."""
    root = Path(importlib.util.find_spec("fastmf").origin).parents[1]
    path = os.pathsep.join([str(root), str(Path(__file__).parent)])
    environment = os.environ | {"PYTHONPATH": path} | variables
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def python(
    code, *arguments, out, environment=os.environ, folder=".", imports=IMPORTS, compiled=True
):
    """Run a program, as `python -c` does in an environment.

    Settings that Python, BLAS or Numba read once, when they start, are those of this process. So
    is the seed of hashes, in programs of the same imports.

    Parameters
    ----------
    code : str
    *arguments : str
    out : path
        A folder for what is printed.
    environment : mapping of str to str
    folder : path
        In which the program runs.
    imports : tuple of str
        What has been imported when the program begins.
    compiled : bool
        Whether Numba has compiled a function by then: its first takes 0.3 s more than others.

    Returns
    -------
    subprocess.CompletedProcess
    """
    environment = dict(environment)
    if not hasattr(os, "fork"):
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    server, names = _server(imports, compiled), ("stdout", "stderr")
    files = [os.path.join(out, name) for name in names]
    for file in files:
        open(file, "w").close()
    request = {"code": code, "arguments": arguments, "environment": environment}
    request |= {"folder": os.path.abspath(folder), "out": os.path.abspath(out)}
    print(json.dumps(request), file=server.stdin, flush=True)
    status, texts = int(server.stdout.readline()), []
    for file in files:
        with open(file, encoding="utf-8") as stream:
            texts.append(stream.read())
    return subprocess.CompletedProcess(code, status, *texts)


@cache
def _server(imports, compiled):
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, ",".join(imports), json.dumps(path), json.dumps(compiled)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.communicate)  # which ends what it reads
    return server
