"""A progress bar, by tqdm where it is installed and by plain lines where it is not."""

from contextlib import contextmanager

from fastmf._common.progress import Stderr
from fastmf._jit.messages import announced, to_stderr
from fastmf.models import CRBM


class _Lines:
    """The few methods of a tqdm bar that training uses, as one line an epoch."""

    def update(self, n=1):
        """Nothing is shown between epochs."""

    def set_postfix_str(self, text):
        to_stderr(text)


class _Silent(_Lines):
    def set_postfix_str(self, text):
        pass


@contextmanager
def progress(total, initial, verbose, what):
    """A bar over all batches of a run; above it, a line if kernels are compiled."""
    if not verbose:
        with announced(what):
            yield _Silent()
        return
    try:
        from tqdm import tqdm
    except ImportError:
        with announced(what):
            yield _Lines()
        return
    with tqdm(total=total, initial=initial, unit="batch", file=Stderr()) as bar:

        def write(text):
            bar.write(text, file=bar.fp)

        with announced(what, show=write):
            yield bar


def units_of(model):
    """The units of a model in words, such as "Bernoulli x Bernoulli, float32"."""
    if isinstance(model, CRBM):
        return f"a conditional RBM, {model.dtype}"
    return f"{' x '.join(type(prior).__name__ for prior in model.layers)}, {model.dtype}"
