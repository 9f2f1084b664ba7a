"""Generators, discriminators and classifiers. Resolution, width, architecture and normalisation are config fields."""

from wcgan.nets.classifier import ClassifierConfig, ResidualClassifier, build_classifier
from wcgan.nets.config import DiscriminatorConfig, GeneratorConfig
from wcgan.nets.gan import Discriminator, Generator, Scores, build_discriminator, build_generator

__all__ = [
    "ClassifierConfig",
    "Discriminator",
    "DiscriminatorConfig",
    "Generator",
    "GeneratorConfig",
    "ResidualClassifier",
    "Scores",
    "build_classifier",
    "build_discriminator",
    "build_generator",
]
