"""Loggers: Weights & Biases and MLflow without a network, and what is said if one is missing."""

import struct
import sys

import pytest
from tests.train.cases import tiny_config, tiny_data, tiny_run

from wcgan.train import Custom, MLflowLogger, WandbLogger, train

ITERATIONS = [1, 2, 3, 4]


def run_with(logger, folder, stop_at=None, resume=None):
    """Trains four iterations; a score is that of an evaluation, whose name has brackets."""
    config = tiny_config(iterations=4, sample_every=2)
    run = resume or tiny_run(folder, config)
    train(config, tiny_data(), run, lambda sampler: {"FID(classifier)": 3.0}, stop_at, Custom([logger]))
    return run


@pytest.mark.parametrize(("logger", "module"), [(WandbLogger, "wandb"), (MLflowLogger, "mlflow")])
def test_a_logger_that_is_not_installed_names_its_extra(logger, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{module} is not installed: pip install 'wcgan\[{module}\]'"):
        logger()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of W&B's own
def test_weights_and_biases_gets_losses_scores_grids_and_the_config_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = run_with(WandbLogger("mine", mode="offline"), tmp_path / "run", stop_at=2)
    run_with(WandbLogger("mine", mode="offline"), tmp_path / "run", resume=run)
    records = [record for file in sorted(run.folder.rglob("*.wandb")) for record in read_offline(file)]
    history = [row for record in records for row in record.history.item]
    losses = [float(row.value_json) for row in history if "loss/generator" in (row.key, *row.nested_key)]
    assert len(losses) == len(ITERATIONS)
    assert any("FID(classifier)" in (row.key, *row.nested_key) for row in history)
    assert any('"image-file"' in row.value_json for row in history)
    started = [record.run for record in records if record.HasField("run")]
    assert {each.project for each in started} == {"mine"}
    assert len({each.run_id for each in started}) == 1
    assert any(item.key == "generator" for each in started for item in each.config.update)


def read_offline(file):
    """The records of a run that W&B has not sent yet: a LevelDB log of protocol buffers, after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    content, place, block, parts = file.read_bytes(), 7, 1 << 15, b""
    while place + 7 <= len(content):
        if block - place % block < 7:  # too short for a header: padding
            place += block - place % block
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)  # after a checksum
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow's and SQLAlchemy's own
def test_mlflow_gets_losses_scores_grids_and_the_config_in_a_database_of_its_own(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.chdir(tmp_path)
    address = f"sqlite:///{tmp_path}/mlflow.db"
    run = run_with(MLflowLogger("mine", address), tmp_path / "run", stop_at=2)
    run_with(MLflowLogger("mine", address), tmp_path / "run", resume=run)
    client = mlflow.MlflowClient(address)
    (found,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "run"
    assert found.data.params["generator.normalization"] == "cWC"
    assert found.data.metrics["FID/classifier"] == 3.0
    steps = [point.step for point in client.get_metric_history(found.info.run_id, "loss/generator")]
    assert steps == ITERATIONS
    images = [file.path for file in client.list_artifacts(found.info.run_id, "samples")]
    assert images == ["samples/0000002.png", "samples/0000004.png"]
