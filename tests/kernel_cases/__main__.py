"""Run the named cases at a size given as "30,14,5"; save their results to an .npz file."""

import sys

import numpy as np

from kernel_cases import Size, case

(path, size, *names), results = sys.argv[1:], {}
for name in names:
    arguments = case(name).build(Size(*map(int, size.split(","))), "float64")
    case(name).compiled(*arguments)
    results |= {f"{name}/{k}": v for k, v in case(name).filled(arguments).items()}
np.savez(path, **results)
