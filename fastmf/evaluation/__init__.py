"""Log-partitions, likelihoods, samples and linear response of models; scores and baselines."""

from fastmf.evaluation.chains import gibbs_chains
from fastmf.evaluation.contacts import (
    contact_precision,
    contact_scores,
    effective_couplings,
    ranked_pairs,
)
from fastmf.evaluation.denoising import (
    flip,
    matthews_correlation,
    nearest_neighbour,
    pointwise_estimate,
)
from fastmf.evaluation.landscape import Tracker, solutions
from fastmf.evaluation.log_partition import (
    AnnealedEstimate,
    LogPartitionReport,
    annealed_importance_sampling,
    log_partition_report,
)
from fastmf.evaluation.pseudo_likelihood import pseudo_log_likelihood
from fastmf.evaluation.response import susceptibility
from fastmf.inference.mean_field.likelihood import log_likelihood
from fastmf.inference.mean_field.solutions import Solutions
from fastmf.learning.training.trainer import Checkpoint, IterateAverage

__all__ = [
    "AnnealedEstimate",
    "Checkpoint",
    "IterateAverage",
    "LogPartitionReport",
    "Solutions",
    "Tracker",
    "annealed_importance_sampling",
    "contact_precision",
    "contact_scores",
    "effective_couplings",
    "flip",
    "gibbs_chains",
    "log_likelihood",
    "log_partition_report",
    "matthews_correlation",
    "nearest_neighbour",
    "pointwise_estimate",
    "pseudo_log_likelihood",
    "ranked_pairs",
    "solutions",
    "susceptibility",
]
