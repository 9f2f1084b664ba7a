"""The paper's tables of results, number for number: to be compared with what the library says the paper reports.

Nothing here knows of the library. A table is named by its label without `tab.`; where one label covers two tables side
by side, " left" or " right" follows. A row is named by its text, without citations and emphasis, a subscript written
`_sa`. A column is "DATASET METRIC", and what else the head of the column says comes last; FID 10K is written FID 10k. A
cell is `(mean, std)`, where std is None if none is printed. A cell that holds a dash is left out. Each comment ends
with the line of the paper's source where the table begins.
"""

from __future__ import annotations

TABLES: dict[str, dict[str, dict[str, tuple[float, float | None]]]] = {
    # Unconditional generation on CIFAR-10 and STL-10, with and without WC: line 332.
    "cifar-unsup-GP-SN-only": {
        "GP + ResNet": {"CIFAR-10 IS": (7.86, 0.07)},
        "WC GP + ResNet (ours)": {"CIFAR-10 IS": (8.20, 0.08), "CIFAR-10 FID 10k": (20.4, None)},
        "SN + DCGAN": {
            "CIFAR-10 IS": (7.58, 0.12),
            "CIFAR-10 FID 5k": (25.5, None),
            "STL-10 IS": (8.79, 0.14),
            "STL-10 FID 5k": (43.2, None),
        },
        "WC SN + DCGAN (ours)": {
            "CIFAR-10 IS": (7.84, 0.10),
            "CIFAR-10 FID 5k": (25.5, None),
            "CIFAR-10 FID 10k": (23.0, None),
            "STL-10 IS": (9.45, 0.18),
            "STL-10 FID 5k": (40.1, None),
            "STL-10 FID 10k": (37.9, None),
        },
        "SN + ResNet": {
            "CIFAR-10 IS": (8.22, 0.05),
            "CIFAR-10 FID 5k": (21.7, None),
            "STL-10 IS": (9.10, 0.04),
            "STL-10 FID 5k": (40.1, None),
        },
        "WC SN + ResNet (ours)": {
            "CIFAR-10 IS": (8.66, 0.11),
            "CIFAR-10 FID 5k": (20.2, None),
            "CIFAR-10 FID 10k": (17.2, None),
            "STL-10 IS": (9.93, 0.13),
            "STL-10 FID 5k": (38.7, None),
            "STL-10 FID 10k": (36.4, None),
        },
    },
    # The state of the art on CIFAR-10, unconditioned: line 373.
    "cifar-cond-and-uncond-SOTA left": {
        "ALI": {"CIFAR-10 IS": (5.34, 0.05)},
        "BEGAN": {"CIFAR-10 IS": (5.62, None)},
        "DCGAN": {"CIFAR-10 IS": (6.16, 0.07)},
        "Improved GAN (-L+HA)": {"CIFAR-10 IS": (6.86, 0.06)},
        "EGAN-Ent-VI": {"CIFAR-10 IS": (7.07, 0.10)},
        "DFM": {"CIFAR-10 IS": (7.72, 0.13)},
        "WGAN-GP": {"CIFAR-10 IS": (7.86, 0.07)},
        "CT-GAN": {"CIFAR-10 IS": (8.12, 0.12)},
        "SN-GAN": {"CIFAR-10 IS": (8.22, 0.05)},
        "OT-GAN": {"CIFAR-10 IS": (8.46, 0.12)},
        "PROGRESSIVE": {"CIFAR-10 IS": (8.80, 0.13)},
        "WC SN + ResNet (ours)": {"CIFAR-10 IS": (8.66, 0.11)},
    },
    # The state of the art on CIFAR-10, conditioned: line 392.
    "cifar-cond-and-uncond-SOTA right": {
        "SteinGAN": {"CIFAR-10 IS": (6.35, None)},
        "DCGAN with labels": {"CIFAR-10 IS": (6.58, None)},
        "Improved GAN": {"CIFAR-10 IS": (8.09, 0.07)},
        "AC-GAN": {"CIFAR-10 IS": (8.25, 0.07)},
        "SGAN-no-joint": {"CIFAR-10 IS": (8.37, 0.08)},
        "WGAN-GP ResNet": {"CIFAR-10 IS": (8.42, 0.10)},
        "SGAN": {"CIFAR-10 IS": (8.59, 0.12)},
        "SNGAN-PROJECITVE": {"CIFAR-10 IS": (8.62, None)},
        "CT-GAN": {"CIFAR-10 IS": (8.81, 0.13)},
        "AM-GAN": {"CIFAR-10 IS": (8.91, 0.11)},
        "cWC SN + Proj. Discr. (ours)": {"CIFAR-10 IS": (9.06, 0.13)},
        "cWC_sa SN + Proj. Discr. (ours)": {"CIFAR-10 IS": (8.85, 0.10)},
    },
    # Ablation of WC on CIFAR-10: line 450.
    "CIFAR-ablation-unsup": {
        "W-only": {"CIFAR-10 IS": (6.63, 0.07), "CIFAR-10 FID 10k": (36.8, None)},
        "WC-diag": {"CIFAR-10 IS": (7.00, 0.09), "CIFAR-10 FID 10k": (34.1, None)},
        "C-only": {"CIFAR-10 IS": (7.86, 0.08), "CIFAR-10 FID 10k": (23.17, None)},
        "std-C": {"CIFAR-10 IS": (8.34, 0.08), "CIFAR-10 FID 10k": (18.02, None)},
        "W_zcaC": {"CIFAR-10 IS": (8.29, 0.08), "CIFAR-10 FID 10k": (18.57, None)},
        "WC": {"CIFAR-10 IS": (8.66, 0.11), "CIFAR-10 FID 10k": (17.2, None)},
    },
    # Tiny ImageNet: line 466.
    "ImageNet-ablation-sup": {
        "cBN": {"Tiny ImageNet IS": (9.27, 0.14), "Tiny ImageNet FID 10k": (39.9, None)},
        "cWC": {"Tiny ImageNet IS": (10.43, 0.13), "Tiny ImageNet FID 10k": (35.7, None)},
        "cWC_sa": {"Tiny ImageNet IS": (11.78, 0.25), "Tiny ImageNet FID 10k": (27.7, None)},
    },
    # Conditional generation on CIFAR-10 and CIFAR-100, cWC and cWC_sa in two frameworks: line 527.
    "cond-exp-direct-comparison": {
        "GP + ACGAN": {"CIFAR-10 IS": (8.42, 0.10)},
        "cWC GP + ACGAN (ours)": {"CIFAR-10 IS": (8.80, 0.13), "CIFAR-10 FID 10k": (17.2, None)},
        "cWC_sa GP + ACGAN (ours)": {"CIFAR-10 IS": (8.69, 0.13), "CIFAR-10 FID 10k": (16.8, None)},
        "SN + Proj. Discr.": {
            "CIFAR-10 IS": (8.62, None),
            "CIFAR-10 FID 5k": (17.5, None),
            "CIFAR-100 IS": (9.04, None),
            "CIFAR-100 FID 5k": (23.2, None),
        },
        "cWC SN + Proj. Discr. (ours)": {
            "CIFAR-10 IS": (8.97, 0.11),
            "CIFAR-10 FID 5k": (16.0, None),
            "CIFAR-10 FID 10k": (13.5, None),
            "CIFAR-100 IS": (9.52, 0.07),
            "CIFAR-100 FID 5k": (20.5, None),
            "CIFAR-100 FID 10k": (17.2, None),
        },
        "cWC_sa SN + Proj. Discr. (ours)": {
            "CIFAR-10 IS": (8.85, 0.10),
            "CIFAR-10 FID 5k": (16.5, None),
            "CIFAR-10 FID 10k": (13.5, None),
            "CIFAR-100 IS": (9.80, 0.17),
            "CIFAR-100 FID 5k": (20.6, None),
            "CIFAR-100 FID 10k": (17.4, None),
        },
    },
    # ImageNet, IS after so many iterations of training: line 548.
    "full-ImageNet": {
        "SN + Proj. Discr.": {
            "ImageNet IS 100k": (17.5, None),
            "ImageNet IS 200k": (21.0, None),
            "ImageNet IS 300k": (23.5, None),
            "ImageNet IS 450k": (29.7, 0.61),
        },
        "cWC_sa SN + Proj. Discr. (ours)": {
            "ImageNet IS 100k": (21.39, 0.37),
            "ImageNet IS 200k": (26.11, 0.40),
            "ImageNet IS 300k": (29.20, 0.87),
            "ImageNet IS 450k": (34.36, 0.67),
        },
    },
    # Ablation of cWC on CIFAR-10 and CIFAR-100: line 594.
    "ablation-sup": {
        "cBN": {
            "CIFAR-10 IS": (7.68, 0.13),
            "CIFAR-10 FID 10k": (22.1, None),
            "CIFAR-100 IS": (8.08, 0.08),
            "CIFAR-100 FID 10k": (26.5, None),
        },
        "c-std-C": {
            "CIFAR-10 IS": (7.92, 0.11),
            "CIFAR-10 FID 10k": (24.37, None),
            "CIFAR-100 IS": (7.67, 0.08),
            "CIFAR-100 FID 10k": (46.46, None),
        },
        "c-std-C_sa": {
            "CIFAR-10 IS": (7.93, 0.11),
            "CIFAR-10 FID 10k": (26.75, None),
            "CIFAR-100 IS": (8.23, 0.10),
            "CIFAR-100 FID 10k": (27.59, None),
        },
        "cWC-cls-only": {
            "CIFAR-10 IS": (8.10, 0.09),
            "CIFAR-10 FID 10k": (28.0, None),
            "CIFAR-100 IS": (7.10, 0.06),
            "CIFAR-100 FID 10k": (75.4, None),
        },
        "cWC_sa-cls-only": {
            "CIFAR-10 IS": (8.20, 0.09),
            "CIFAR-10 FID 10k": (23.5, None),
            "CIFAR-100 IS": (7.88, 0.12),
            "CIFAR-100 FID 10k": (33.4, None),
        },
        "cWC-diag": {
            "CIFAR-10 IS": (8.90, 0.09),
            "CIFAR-10 FID 10k": (14.2, None),
            "CIFAR-100 IS": (8.82, 0.12),
            "CIFAR-100 FID 10k": (20.8, None),
        },
        "cWC": {
            "CIFAR-10 IS": (8.97, 0.11),
            "CIFAR-10 FID 10k": (13.5, None),
            "CIFAR-100 IS": (9.52, 0.07),
            "CIFAR-100 FID 10k": (17.2, None),
        },
        "cWC_sa": {
            "CIFAR-10 IS": (8.85, 0.10),
            "CIFAR-10 FID 10k": (13.5, None),
            "CIFAR-100 IS": (9.80, 0.17),
            "CIFAR-100 FID 10k": (17.4, None),
        },
    },
    # Classification error, in percent: line 634.
    "disc": {
        "BN": {
            "CIFAR-10 error ResNet-32": (7.31, None),
            "CIFAR-10 error ResNet-56": (7.21, None),
            "CIFAR-100 error ResNet-32": (31.41, None),
            "CIFAR-100 error ResNet-56": (30.68, None),
        },
        "WC": {
            "CIFAR-10 error ResNet-32": (7.00, None),
            "CIFAR-10 error ResNet-56": (6.60, None),
            "CIFAR-100 error ResNet-32": (31.25, None),
            "CIFAR-100 error ResNet-56": (30.40, None),
        },
        "DBN": {"CIFAR-10 error ResNet-32": (6.94, None), "CIFAR-10 error ResNet-56": (6.49, None)},
    },
    # User study on Tiny ImageNet, the preference for cWC_sa in percent: line 936.
    "user": {
        "cBN vs cWC_sa": {"Tiny ImageNet preference": (67.34, None), "Tiny ImageNet Cronbach's alpha": (0.87, None)},
    },
    # FID 10k on MNIST and Fashion-MNIST, unconditional (BN, WC) and conditional (cBN, cWC): line 1015.
    "mnist": {
        "BN": {"MNIST FID 10k": (3.6, None), "Fashion-MNIST FID 10k": (10.6, None)},
        "WC": {"MNIST FID 10k": (4.9, None), "Fashion-MNIST FID 10k": (10.4, None)},
        "cBN": {"MNIST FID 10k": (4.5, None), "Fashion-MNIST FID 10k": (7.5, None)},
        "cWC": {"MNIST FID 10k": (4.3, None), "Fashion-MNIST FID 10k": (6.2, None)},
    },
}

# Labels without `tab.` and `fig.`, in the order of their captions in the paper's source, which gives them their
# numbers: two tables side by side with a caption each are two.
TABLES_IN_ORDER = (
    *("cifar-unsup-GP-SN-only", "cifar-cond-and-uncond-SOTA", "CIFAR-ablation-unsup", "ImageNet-ablation-sup"),
    *("cond-exp-direct-comparison", "full-ImageNet", "ablation-sup", "disc", "arc_unsup", "arc-sup", "user"),
    *("arcmnist", "mnist"),
)
FIGURES_IN_ORDER = (
    *("architecture", "cifar-convergence", "abl", "zca-vs-cholesky", "cifar10", "cifar_stl", "cifar10-100-z-fixed"),
    *("imagenet-tiny-imagenet", "mnist"),
)
