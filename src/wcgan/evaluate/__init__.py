"""Images to features to scores. Scores by the small classifier's features carry its name, never plain FID or IS."""

from wcgan.evaluate.classifier import Classifier, ClassifierFacts, ClassifierSettings
from wcgan.evaluate.frechet import Moments, RunningMoments, features_to_moments, frechet_distance
from wcgan.evaluate.generator import evaluate_generator
from wcgan.evaluate.inception_score import inception_score
from wcgan.evaluate.train_classifier import load_classifier, train_classifier

__all__ = [
    "Classifier",
    "ClassifierFacts",
    "ClassifierSettings",
    "Moments",
    "RunningMoments",
    "evaluate_generator",
    "features_to_moments",
    "frechet_distance",
    "inception_score",
    "load_classifier",
    "train_classifier",
]
