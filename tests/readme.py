"""The README's examples, run once for whoever asks for their names."""

import re
from functools import cache
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)


@cache
def example(number):
    """What an example has defined, as a module would."""
    # A module of its own: a prior's source is looked up in its file.
    names = {"__name__": f"readme_{number}"}
    block = BLOCKS[number].replace("n_epochs=20", "n_epochs=2")
    exec(compile(block, f"readme_{number}.py", "exec"), names)
    return names
