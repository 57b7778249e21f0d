"""First calls of every solver and estimator: cold, of a second combination, and cached."""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from first_call import ROWS, Seconds, measure  # isort: skip


def _measured(name):
    """Seconds of a row, or NaN where a commit lacks something that the row calls."""
    try:
        return measure(ROWS[name])
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return Seconds(*[math.nan] * len(Seconds._fields))


class FirstCall:
    """Seconds of first calls; the rows are those of `scripts/first_call.py`."""

    # asv knows parameters by their position: new rows go to the end.
    params = tuple(ROWS)
    param_names = ("call",)
    unit = "s"
    timeout = 3600  # of setup_cache, which measures all rows

    def setup_cache(self):
        return {name: _measured(name) for name in self.params}

    def track_cold(self, measured, call):
        return measured[call].cold

    def track_second_combination(self, measured, call):
        return measured[call].second

    def track_other_type(self, measured, call):
        return _or_nan(measured[call].other)

    def track_cached(self, measured, call):
        return measured[call].cached


def _or_nan(seconds):
    return math.nan if seconds is None else seconds
