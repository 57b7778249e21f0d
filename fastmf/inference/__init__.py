"""Solvers: a model in, a `FixedPoint` out, which is judged when its `reliable` is first read."""

from fastmf.inference import fixed_point


def _judge(answer, question):
    # The checks import all solvers: they are loaded when they are first asked for.
    from fastmf.inference.checks.judge import reasons_of

    return reasons_of(answer, question)


fixed_point.JUDGES.append(_judge)
