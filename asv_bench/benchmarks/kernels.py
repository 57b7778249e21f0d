"""Every kernel of the table that the tests use, at real sizes, beside its NumPy twin."""

import time

from kernel_cases import CASES, Size, case
from threadpoolctl import ThreadpoolController

from . import THREADS

SIZES = {"784x100": Size(784, 100, 100), "784x500": Size(784, 500, 100),
         "784x2000": Size(784, 2000, 100)}  # fmt: skip
TINY = Size(20, 10, 4)
# The large cases of the table, in full: asv tells parameters by position, and where a commit lacks
# a kernel, a list made from the table would give its figures the names of others. Append only.
NAMES = [
    "mean_field.tap.tap-blocked",
    "mean_field.tap.tap-ten_sweeps",
    "mean_field.tap.tap-sequential",
    "mean_field.tap.tap-accelerated",
    "sampling.annealing.anneal_layers-gibbs",
    "training.ascent.ascend-from_rows",
    "bp.belief_propagation.belief_propagation-sum",
    "bp.belief_propagation.belief_propagation-max",
    "bp.belief_propagation.belief_propagation-mixed",
    "bp.belief_propagation.exponentials-weights",
    "bp.belief_propagation.pair_beliefs-rows",
    "bp.local_search.climb-marginal",
    "bp.local_search.climb-joint",
    "pseudo_likelihood.binary.residuals-plain",
    "pseudo_likelihood.binary.bslm-plain",
    "mean_field.relaxed_bp.relaxed_bp-rbm",
    "ep.sites.visit_block-covariance",
    "ep.sites.visit_block-data_covariance",
    "ep.sites.tilt_sites-spike_and_slab",
    "ep.sites.match_sites-free",
    "ep.sites.match_cavities-spike_and_slab",
    "sampling.effective_couplings.effective_couplings-three_states",
    "bp.graphs.graph_sweep-binary-backwards",
    "bp.graphs.graph_sweep-binary-forwards",
    "bp.graphs.graph_sweep-sums-backwards",
    "bp.graphs.graph_sweep-sums-forwards",
    "bp.graphs.graph_sweep-maxima-backwards",
    "bp.graphs.graph_sweep-maxima-forwards",
    "bp.graphs.graph_sweep-trees-backwards",
    "bp.graphs.graph_sweep-trees-forwards",
    "bp.graphs.binary_terms-spins",
    "bp.graphs.decode_graph-moves",
    "bp.graphs.forest_move-states",
    "bp.groups.group_propagation-sum",
    "pseudo_likelihood.hamming.count_similar-rows",
    "pseudo_likelihood.hamming.spanning_trees-forests",
    "pseudo_likelihood.ordinal.conditionals-plain",
    "pseudo_likelihood.potts.value_and_gradient-proteins",
    "bp.convergence.assess_rows-stages",
    "sampling.annealing.anneal_layers-mixed",
    "sampling.annealing.anneal_visible-spins",
    "ep.site_blocks.tilt_blocks-cavities",
    "mean_field.tap.moments_given-binary",
    "mean_field.tap.sweep_chunks-spins",
    "mean_field.tap.sweep_chunks-groups",
    "mean_field.tap.assess_rows-running",
    "mean_field.tap.greedy_colours-chords",
    "mean_field.tap.tap-truncated_spikes",
    "mean_field.tap.log_partitions-second_order",
]
# Kernels in double precision alone, and those without a queue of tasks: asv prints "n/a" for each
# combination of parameters that a benchmark leaves out.
DOUBLE = ("bp.convergence", "bp.graph", "bp.groups", "bp.local_search", "ep.site",
          "pseudo_likelihood.binary.bslm", "pseudo_likelihood.hamming")  # fmt: skip
SERIAL = ("ep.site_blocks", "ep.sites.visit_block", "mean_field.relaxed_bp",
          "mean_field.tap.assess_rows", "mean_field.tap.greedy_colours",
          "mean_field.tap.sweep_chunks", "sampling.annealing", "training")  # fmt: skip
POOLS = ThreadpoolController()


def _grid(*sizes, cases=NAMES, without=(), dtype="float64", threads="one"):
    cases = [name for name in cases if not name.startswith(tuple(without))]
    return cases, list(sizes), [dtype], ["compiled", "twin"], [threads]


def _clock():
    """CPU time for one thread, which excludes other processes, and wall time for more."""
    return time.process_time() if Kernels.threads == 1 else time.perf_counter()


class Kernels:
    """Time of one call."""

    params = _grid("784x500")
    param_names = ("case", "size", "dtype", "which", "threads")
    # A call changes its arguments: `setup` builds new ones for each. Six runs of either commit are
    # the fewest from which asv concludes that one is slower; with two rounds commits alternate.
    number, repeat, rounds, warmup_time = 1, (3, 10, 5.0), 2, 0
    timer, threads = staticmethod(_clock), 1

    def setup(self, name, size, dtype, which, threads):
        if name not in map(str, CASES):
            raise NotImplementedError("not in this version")  # "n/a"
        self.case = case(name)
        Kernels.threads = 1 if threads == "one" else THREADS
        POOLS.limit(limits=Kernels.threads, user_api="blas")
        self.case.run(which, self.case.build(TINY, dtype))  # compiles, or loads what was compiled
        self.arguments = self.case.build(SIZES[size], dtype)

    def time_call(self, name, size, dtype, which, threads):
        self.case.run(which, self.arguments, Kernels.threads)


class Float32Kernels(Kernels):
    """The same in single precision."""

    params = _grid("784x500", without=DOUBLE, dtype="float32")


class ThreadedKernels(Kernels):
    """The same on all cores."""

    params = _grid("784x500", without=SERIAL, threads="all")


class OtherSizes(Kernels):
    """Time of one call at sizes that the short form leaves out."""

    params = _grid("784x100", "784x2000")


class KernelMemory(Kernels):
    """Peak memory of the whole process, interpreter and Numba included."""

    params = _grid(*SIZES, cases=["mean_field.tap.tap-ten_sweeps"])

    def peakmem_call(self, name, size, dtype, which, threads):
        self.case.run(which, self.arguments)

    time_call = None
