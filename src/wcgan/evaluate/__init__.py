"""Score images: FID, KID, IS, precision and recall. Scores from the small classifier always carry its name."""

from wcgan.evaluate.fid import Moments, RunningMoments, covariance_to_factor, features_to_moments, frechet_distance
from wcgan.evaluate.inception import Inception, load_inception
from wcgan.evaluate.metrics import RunningInceptionScore, inception_score, kernel_distance, precision_recall
from wcgan.evaluate.protocol import (
    METRICS,
    PROTOCOLS,
    Features,
    Plan,
    Protocol,
    facts_to_name,
    find_protocol,
    protocol_to_plan,
    shape_to_words,
)
from wcgan.evaluate.reference import Reference, load_reference
from wcgan.evaluate.score import check_metrics, evaluate_generator, evaluate_images
from wcgan.evaluate.small_classifier import Classifier, ClassifierFacts, ClassifierSettings
from wcgan.evaluate.train_small_classifier import load_small_classifier, train_small_classifier

__all__ = [
    "METRICS",
    "PROTOCOLS",
    "Classifier",
    "ClassifierFacts",
    "ClassifierSettings",
    "Features",
    "Inception",
    "Moments",
    "Plan",
    "Protocol",
    "Reference",
    "RunningInceptionScore",
    "RunningMoments",
    "check_metrics",
    "covariance_to_factor",
    "evaluate_generator",
    "evaluate_images",
    "facts_to_name",
    "features_to_moments",
    "find_protocol",
    "frechet_distance",
    "inception_score",
    "kernel_distance",
    "load_inception",
    "load_reference",
    "load_small_classifier",
    "precision_recall",
    "protocol_to_plan",
    "shape_to_words",
    "train_small_classifier",
]
