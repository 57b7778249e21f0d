"""Learning of RBMs and DBMs: gradients, steps, and the functions called by the training loop.

A training step, from the estimator to the kernels, in the order of calls:

    estimators/layered/_learning.py     standardised data, settings, metrics
    estimators/common/runs.py           options of a run
    learning/training/trainer.py        epochs, batches, random numbers, checkpoints
    step.py                             `Plan`: properties of a run, and its steps
    gradients.py                        averages over data and model, centred and natural gradients
    learning/training/ascent.py         momentum, decay and threads
    kernels/training/                   moments given data, products of units, ascent

Mean-field solutions come from `fastmf.inference.mean_field`. The other modules are for some
machines or options: missing values, exact gradients, scales.
"""
