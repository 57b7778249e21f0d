"""Learning of RBMs and DBMs: gradients, steps, and what the training loop takes of them.

A step of `fit`, from the estimator to the kernels, in the order of calls:

    estimators/layered/_learning.py     data in units of learning, settings, metrics
    estimators/common/runs.py           options of a run
    learning/training/trainer.py        epochs, batches, random numbers, checkpoints
    family.py, dispatch.py              what the loop calls; the compiled or the general path

    general_step.py, gradients.py       general path: averages over data and model, gradient
    learning/training/ascent.py         momentum, decay and threads; its coordinates: centring.py

    compiled_steps.py                   compiled path: a list of phases, arguments, calls
    phases.py, moves.py, memory.py      phases: kernels, memory, requirements; those of some
                                        machines only are in files of their own (*_phase.py)
    kernels/training/train.py           the kernel that runs phases, whose arguments are in
                                        arguments.py and whose parts are in rows.py,
                                        gradients.py, units.py and ascent.py

Both paths take the same steps: the general one, in NumPy, is to be read first. Mean-field solutions
are those of `fastmf.inference.mean_field` and its kernels. The other files here serve some machines
or options (groups of states, layers integrated out, missing values, exact gradients,
preconditioners), or take no part in a step: `metrics.py`, and `resumption.py` of the loop.
"""
