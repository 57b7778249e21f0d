"""The examples of the README and of CONTRIBUTING.md, run once for all tests that use them."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md")
BLOCKS = {
    (page, number): block
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)
    )
}


@cache
def example(page, number):
    """The names that an example defines, as those of a module."""
    # A module of its own: the source of a prior's methods is read from its file.
    name = f"{page.partition('.')[0].lower()}_{number}"
    names = {"__name__": name}
    block = re.sub(r"n_epochs=\d+", "n_epochs=2", BLOCKS[page, number])
    exec(compile(block, f"{name}.py", "exec"), names)
    return names
