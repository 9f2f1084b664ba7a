"""The GPU's benchmark, in miniature on the CPU: its file, its table, and peers that compute the same thing."""

import json
import re

import pytest
import torch
from tests.benchmarks.scripts import load_script

import wcgan
from wcgan.reproduce.timed_iteration import iteration_config

gpu, eager = load_script("gpu"), load_script("eager")
bench, parts, peers, table, timing = (
    load_script(f"_gpu.{name}") for name in ("bench", "parts", "peers", "table", "timing")
)
QUICK = ["--device", "cpu", "--quick", "--iterations", "20"]
WIDE = ("(4, 8, 4) float32", "(4, 8, 4) float32, TF32 allowed")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """What a run in miniature writes to its file."""
    path = tmp_path_factory.mktemp("benchmark") / "new" / "gpu.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WCGAN_COMMIT", "abc")
        gpu.main([*QUICK, "--out", str(path)])
    return json.loads(path.read_text())


def full_report():
    """As a GPU would give it."""
    return {
        "machine": "a GPU",
        "commit": "abc",
        "versions": {"torch": "2"},
        "factorisation_us": {"d=256, batch 1": {"ours": 42.0, "library": 168.0}},
        "layer_us": {"(128, 256, 32) bfloat16": {"BN": 200.0, "WC": 250.0}},
        "iteration_ms": {"BN": 12.0, "WC": 15.5, "cBN": 10.0, "cWC": 10.5, "WzcaC": 465.0},
        "ratio_to_bn": {"BN": 1.0, "WC": 1.2, "cBN": 1.0, "cWC": 1.05, "WzcaC": 38.0},
        "inference_ms": {"BN": 2.0, "WC": 2.0},
    }


@pytest.mark.slow
def test_nothing_is_skipped_and_every_peer_is_measured_on_every_case(report):
    assert "skipped" not in report
    assert list(report["factorisation_us"]) == [f"d={d}, batch {n}" for d in (4, 40) for n in (1, 2)]
    assert list(report["layer_us"]) == ["(4, 8, 2) bfloat16", "(4, 8, 4) bfloat16", *WIDE]
    assert all(list(values) == list(peers.LAYERS) for values in report["layer_us"].values())
    for key in ("iteration_ms", "ratio_to_bn", "floor"):
        assert list(report[key]) == list(peers.VARIANTS)
    assert list(report["inference_ms"]) == ["BN", "WC"]
    assert [(turn["name"], turn["ms"] > 0) for turn in report["long_iteration"]] == [("BN", True), ("WC", True)] * 2


@pytest.mark.slow
def test_a_report_says_what_was_measured_on_what(report):
    assert report["commit"] == "abc"
    assert report["versions"]["torch"] == torch.__version__
    assert set(report["measured_at"].values()) == {"abc"}
    measured = {"factorisation_us, d=40, batch 2", "layer_us, (4, 8, 4) float32, WC autodiff", "runs, kernels"}
    assert measured | {"iteration_ms, WC, plain passes", "inference_ms, BN"} <= set(report["measured_at"])


@pytest.mark.slow
def test_a_baseline_is_once_itself(report):
    assert (report["ratio_to_bn"]["BN"], report["ratio_to_bn"]["cBN"]) == (1.0, 1.0)


@pytest.mark.slow
def test_all_runs_are_made_and_on_a_cpu_both_ways_are_one(report):
    runs = report["runs"]
    assert list(runs["runs"]) == ["kernels", "plain", "plain, another seed"]
    for found in runs["verdict"].values():
        assert found["kernels_to_plain"] == 0 < found["seed_to_seed"]
        assert found["within_noise"]


def test_the_eager_part_measures_every_peer_with_its_ratio(tmp_path, capsys):
    path = tmp_path / "gpu.json"
    gpu.main([*QUICK, "--parts", "eager", "--out", str(path)])
    found = json.loads(path.read_text())
    cases = [f"(4, 8, 2) {dtype}, {mode}" for mode in eager.MODES for dtype in ("bfloat16", "float32")]
    assert list(found["eager_us"]) == list(found["eager_ratio"]) == cases
    assert set(found["eager_us"]["(4, 8, 2) float32, training"]) == set(eager.PEERS)
    assert all(ratios["BN"] == 1 for ratios in found["eager_ratio"].values())
    assert re.search(r"eager \(4, 8, 2\) float32, training +WC +[\d.]+ us +[\d.]+ BN", capsys.readouterr().out)
    assert "skipped" not in found


def test_convolutions_of_images_are_measured_beside_the_librarys(tmp_path, capsys):
    path = tmp_path / "gpu.json"
    gpu.main([*QUICK, "--parts", "images", "--out", str(path)])
    found = json.loads(path.read_text())
    passes = ("forward", "gradient of the input", "gradient of the weight")
    assert list(found["convolution_us"]) == [f"{c} {p}" for c in ("(2, 3, 32, 4)", "(2, 32, 1, 4)") for p in passes]
    assert all(list(values) == ["ours", "library"] for values in found["convolution_us"].values())
    assert re.search(r"convolution \(2, 3, 32, 4\) forward +ours +[\d.]+ us +[\d.]+ library", capsys.readouterr().out)
    assert "skipped" not in found


def test_parts_are_added_to_a_file_that_is_there(tmp_path, capsys, monkeypatch):
    path = tmp_path / "gpu.json"
    measured = {"iteration_ms, BN": "old", "inference_ms, WC": "old"}
    there = {"iteration_ms": {"BN": 1.5}, "skipped": {"inference_ms, BN": "why", "x": "y"}, "measured_at": measured}
    path.write_text(json.dumps(there))
    monkeypatch.setenv("WCGAN_COMMIT", "new")
    gpu.main([*QUICK, "--parts", "inference", "--out", str(path)])
    found = json.loads(path.read_text())
    assert found["iteration_ms"] == {"BN": 1.5}
    new = {f"inference_ms, {name}": "new" for name in ("BN", "WC")}
    assert found["measured_at"] == {"iteration_ms, BN": "old", **new}
    assert list(found["inference_ms"]) == ["BN", "WC"]
    assert found["skipped"] == {"x": "y"}
    assert "layer" not in capsys.readouterr().out


def test_what_there_is_no_time_for_is_skipped_and_said(tmp_path, capsys):
    path = tmp_path / "gpu.json"
    gpu.main([*QUICK, "--seconds", "0", "--out", str(path)])
    found = json.loads(path.read_text())
    assert not {"layer_us", "iteration_ms", "factorisation_us", "inference_ms", "runs"} & set(found)
    assert found["skipped"]["iteration_ms, cWC"] == "0 s had passed"
    assert "skipped layer_us, (4, 8, 2) bfloat16, WC autodiff: 0 s had passed" in capsys.readouterr().out


def test_what_fails_is_skipped_with_its_reason_and_the_rest_is_measured(tmp_path, monkeypatch):
    def fail(channels):
        raise RuntimeError(f"no layer of {channels} channels\nand more")

    monkeypatch.setitem(peers.LAYERS, "IterNorm", (fail, peers.nullcontext))
    gpu.main([*QUICK, "--parts", "layers", "--out", str(tmp_path / "gpu.json")])
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert set(found["skipped"].values()) == {"no layer of 8 channels"}
    assert [name for name in peers.LAYERS if name not in found["layer_us"]["(4, 8, 4) float32"]] == ["IterNorm"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--parts", "layers,nets"],
            "takes some of factorisation, images, layers, eager, iterations, long, inference, runs, got 'nets'",
        ),
        (["--out", __file__], "is there and is not JSON: name another file, or remove it"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_sentence(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        gpu.main([*QUICK, *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_figures_of_two_machines_are_not_mixed(tmp_path, capsys):
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({"machine": "another GPU"}))
    with pytest.raises(SystemExit) as exit_:
        gpu.main([*QUICK, "--out", str(path)])
    assert exit_.value.code == 2
    assert "has figures of another GPU, and this is" in capsys.readouterr().err
    assert json.loads(path.read_text()) == {"machine": "another GPU"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said(capsys):
    with pytest.raises(SystemExit) as exit_:
        gpu.main([])
    assert exit_.value.code == 2
    assert "there is no GPU on this machine" in capsys.readouterr().err


def test_the_table_holds_times_and_ratios_to_their_baselines(capsys):
    table.print_table(full_report())
    lines = [re.sub(" +", " ", line).strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "a GPU; commit abc; torch 2"
    assert "factorisation d=256, batch 1 ours 42.00 us 0.25 library" in lines
    assert "layer (128, 256, 32) bfloat16 WC 250.00 us 1.25 BN" in lines
    assert "iteration cWC 10.50 ms 1.05 cBN" in lines
    assert "inference WC 2.00 ms 1.00 BN" in lines


def test_targets_that_were_measured_are_held_or_missed():
    lines = [line for target in table.TARGETS if (line := table.target_to_line(target, full_report()))]
    assert lines == [
        "iteration: WC / BN = 1.20, at most 1.05: MISSED",
        "iteration: cWC / cBN = 1.05, at most 1.05: held",
        "iteration: WzcaC / WC = 30.00, at least 10: held",
        "iteration: BN = 12.00 ms, at most 9.5 ms: MISSED",
        "iteration: WC = 15.50 ms, at most 10 ms: MISSED",
        "iteration: cWC = 10.50 ms, at most 11.5 ms: held",
        "factorisation d=256, batch 1: ours = 42.00 us, at most 40 us: MISSED",
        "layer (128, 256, 32) bfloat16: WC / BN = 1.25, at most 1.3: held",
        "inference: WC / BN = 1.00, at most 1.02: held",
    ]


def test_targets_name_cases_and_peers_that_are_measured():
    sizes = bench.Sizes()
    layers = {f"{shape} bfloat16" for shape in sizes.shapes} | {f"{sizes.float32_shape} float32, TF32 allowed"}
    widths = {f"d={d}, batch {n}" for d in sizes.widths for n in sizes.batches}
    for target in table.TARGETS:
        if target.part == "layer_us":
            assert target.case in layers
            assert {target.name, target.over} <= set(peers.LAYERS)
        elif target.part == "factorisation_us":
            assert target.case in widths
        elif target.part == "eager_us":
            assert target.case.partition(" b")[0].partition(" f")[0] in map(str, sizes.eager_shapes)
            assert {target.name, target.over} <= {*eager.PEERS, eager.COMPILED}
        elif target.part == "kernels":
            assert target.case in peers.VARIANTS
        else:
            assert {target.name, target.over} - {None} <= set(peers.VARIANTS)
    assert set(table.BASELINES) == set(peers.VARIANTS)


def test_every_timer_is_asked_in_every_round_and_the_first_round_is_forgotten():
    order = []
    counts = {"a": iter(range(9)), "b": iter(range(10, 19))}

    def timer(name):
        return lambda: order.append(name) or next(counts[name])

    assert timing.take_turns({name: timer(name) for name in counts}, 3) == {"a": [1, 2, 3], "b": [11, 12, 13]}
    assert order == ["a", "b"] * 4


def test_kernels_are_told_apart_by_their_names():
    times = [
        ("factorise", 1.0),
        ("cross_kernel", 2.0),
        ("product_kernel", 256.0),
        ("triton_red_fused__native_batch_norm_legit_functional_3", 4.0),
        ("triton_poi_fused_convolution_relu_7", 8.0),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32", 16.0),
        ("void at::native::(anonymous)::multi_tensor_apply_kernel<FusedAdamMathFunctor>", 32.0),
        ("Memcpy DtoD (Device -> Device)", 64.0),
        ("void at::native::reduce_kernel<512>", 128.0),
        ("reduce_kernel", 512.0),
    ]
    shares = peers.kernels_to_shares(times)
    assert shares == {
        "factorisation": 1.0,
        "passes of whitening": 2.0,
        "matrices of whitening": 256.0,
        "convolutions of images": 512.0,
        "Adam": 32.0,
        "batch normalisation": 4.0,
        "fused by the compiler": 8.0,
        "copies": 64.0,
        "convolutions and products": 16.0,
        "other": 128.0,
        "all": 1023.0,
    }


def test_plain_autodiff_computes_what_the_layer_does_in_each_sub_batch():
    torch.manual_seed(0)
    x = (torch.randn(6, 6) @ torch.randn(16, 6, 25)).view(16, 6, 5, 5)
    layer, plain = wcgan.WhiteningColoring2d(6), peers.PlainAutodiff(6, parts={16: 2})
    plain.inner.load_state_dict({name: getattr(layer, name) for name in plain.inner.state_dict()})
    with torch.no_grad(), wcgan.norm.sub_batches(layer, 2):
        wanted = layer(x)
        torch.testing.assert_close(plain(x), wanted, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(plain(x, relu=True), wanted.relu(), rtol=1e-4, atol=1e-4)
        assert plain(x.bfloat16()).dtype == torch.bfloat16


def test_plain_autodiff_trains_the_optimisers_own_parameters():
    config = iteration_config("WC", 4, ["train.batch=4", "train.critic_steps=2"])
    players = parts.build_players(config, torch.device("cpu"))
    wanted = {p for group in players.generator_optimizer.param_groups for p in group["params"]}
    peers.use_autodiff(players, config.train)
    assert set(players.generator.parameters()) == wanted
    found = [m for m in players.generator.modules() if isinstance(m, peers.PlainAutodiff)]
    assert [m.parts for m in found] == [{8: 2}] * 7
