"""A table or figure of the paper as one command: plan it, complete its runs here or on Ray, write it."""

from wcgan.reproduce.command import Result, rebuild, reproduce
from wcgan.reproduce.experiments import EXPERIMENTS
from wcgan.reproduce.plan import Reproduction, plan_table

__all__ = ["EXPERIMENTS", "Reproduction", "Result", "plan_table", "rebuild", "reproduce"]
