"""Learning of RBMs and DBMs: gradients, steps, and what the training loop takes of them.

A step of `fit`, from the estimator to the kernels, in the order of calls:

    estimators/layered/_learning.py     data in units of learning, settings, metrics
    estimators/common/runs.py           options of a run
    learning/training/trainer.py        epochs, batches, random numbers, checkpoints
    step.py                             `Plan`: properties of a run, and its steps
    gradients.py                        averages over data and model, centred and natural gradients
    learning/training/ascent.py         momentum, decay and threads
    kernels/training/                   moments given data, products of units, ascent

Mean-field solutions come from `fastmf.inference.mean_field`. The other files in this folder serve
some machines or options: missing values, exact gradients, scales.
"""
