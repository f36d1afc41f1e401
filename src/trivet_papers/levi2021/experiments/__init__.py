"""The experiments of Levi, Xiao, Wang and Darrell, tables 1 to 6, figures 2 to 6 and appendix C, each in two sizes."""

from trivet_papers.experiment import Experiment
from trivet_papers.levi2021.experiments import digits, omniglot, retrieval, trained, trimming, views

EXPERIMENTS: tuple[Experiment, ...] = (
    *digits.EXPERIMENTS,
    *retrieval.EXPERIMENTS,
    *omniglot.EXPERIMENTS,
    *trained.EXPERIMENTS,
    *views.EXPERIMENTS,
    *trimming.EXPERIMENTS,
)
