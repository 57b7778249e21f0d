import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

import fastmf as mf


def blas_threads():
    """Numbers of threads of all BLAS libraries."""
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


def test_blas_has_one_thread_during_a_run_and_its_own_number_after_it():
    X = np.random.default_rng(0).integers(0, 2, size=(30, 6)).astype(float)
    seen = []
    machine = mf.GeneralizedRBM(
        2, n_epochs=2, callbacks=[lambda state: seen.append(blas_threads())], random_state=0
    )
    with threadpool_limits(2, user_api="blas"):
        machine.fit(X)
        assert seen == [{1}, {1}]
        assert blas_threads() == {2}
