"""The experiments of Levi, Xiao, Wang and Darrell, tables 1 to 6 and figures 2, 4, 5 and 6, each in two sizes."""

from trivet_papers.experiment import Experiment
from trivet_papers.levi2021.experiments import digits, omniglot, retrieval, trained, trimming

EXPERIMENTS: tuple[Experiment, ...] = (
    *digits.EXPERIMENTS,
    *retrieval.EXPERIMENTS,
    *omniglot.EXPERIMENTS,
    *trained.EXPERIMENTS,
    *trimming.EXPERIMENTS,
)
