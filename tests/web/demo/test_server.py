"""What the playground answers to any request: a picture, or one sentence."""

import errno
import json
import os
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import gradio as gr
import pytest
from PIL import Image

from wcgan.web.demo import launch, load_runs
from wcgan.web.demo.answers import file_to_send
from wcgan.web.demo.pictures import MOST_BYTES, images_to_picture

GOOD = ("digits-cWC_sa", [3], "take turns", "", 4, 0, 1.0)


def changed(place, value):
    return *GOOD[:place], value, *GOOD[place + 1 :]


def test_a_good_request_is_answered(served):
    kind, files = served.ask("sample", *GOOD)
    assert kind == "complete"
    names = [Path(file["path"]).name for file in files]  # shown, and to be downloaded as PNG and as ZIP
    assert names == ["digits-cWC_sa-seed-0.png", "digits-cWC_sa-seed-0.png", "digits-cWC_sa-seed-0.zip"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (changed(4, 257), "count must be a whole number from 1 to 256, got 257"),
        (changed(4, "many"), "got 'many'"),
        (changed(4, None), "got None"),
        (changed(1, ["<b>3</b>"]), "there is no class '&lt;b&gt;3&lt;/b&gt;'; this generator has the numbers 0 to 9"),
        (changed(1, {"a": 3}), "got {'a': 3}"),
        (changed(0, "other"), "there are the generators digits-cWC_sa, plain, classless; got 'other'"),
        (changed(0, ["plain"]), "got ['plain']"),
        (changed(2, ["x"]), "take turns or are mixed, got ['x']"),
        (changed(6, "inf"), "truncation must be a number from 0 to 2, got 'inf'"),
        (changed(0, {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}), "7 values, and no files"),
        ((1,), "this request takes 7 values, and no files"),
    ],
)
def test_a_bad_request_gets_a_sentence_and_leaves_no_traceback(served, values, said):
    kind, answer = served.ask("sample", *values)
    assert kind == "error"
    assert said in answer["error"]
    assert "Traceback" not in served.log.read_text()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fixed_z", ("classless", [], 0, 1)),
        ("interpolate", ("classless", 0.5, "both", 0, 1, 0, 1, 8, 1)),
        ("animate", ("plain", 1000, "both", 0, 1, 0, 1, 8, 1)),
        ("compare", (["plain"], [], 36, 0, 1)),
        ("inside", ("plain", "nowhere", "a fresh batch", 0, 0)),
    ],
)
def test_every_tab_refuses_with_a_sentence(served, name, values):
    kind, answer = served.ask(name, *values)
    assert kind == "error"
    assert len(answer["error"].split()) > 5
    assert "Traceback" not in served.log.read_text()


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("gradio_api/call/sample", b"x" * (MOST_BYTES + 1), 413),
        ("gradio_api/upload", b"x" * (MOST_BYTES + 1), 403),
        ("gradio_api/upload", b"x", 403),
        ("gradio_api/upload/", b"x", 403),
        ("gradio_api/component_server", b"{}", 403),
        ("gradio_api/process_recording", b"x", 403),
        ("gradio_api/vibe-edit", b"{}", 403),
        ("gradio_api/stream/a", b"{}", 403),
        ("gradio_api/call/sample", b"no JSON", 422),
        ("gradio_api/call/sample", b'{"data": "text"}', 422),
        ("gradio_api/call/sample", b'{"data": [' + b"9" * 5000 + b"]}", 400),
        ("gradio_api/call/sample", b'{"data": ' + b"[" * 30_000, 400),
        ("gradio_api/call/v2/sample", b'{"klass": 3}', 422),
        ("gradio_api/call/v2/nothing", b"{}", 404),
        ("gradio_api/queue/join", b'{"data": [], "fn_index": 999, "session_hash": "a"}', 404),
    ],
)
def test_what_is_no_request_of_the_page_is_refused(served, path, content, status):
    found, text = served.post(path, content)
    assert found == status
    assert "Traceback" not in text + served.log.read_text()


FILES = (
    b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n'
    b"Content-Type: text/plain\r\n\r\nwritten by a stranger\r\n--x--\r\n"
)


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null"])
def test_no_upload_is_accepted_and_none_is_left_on_the_disk(served, origin):
    headers = {"Content-Type": "multipart/form-data; boundary=x", **({"Origin": origin} if origin else {})}
    for path in ("gradio_api/upload", "gradio_api/upload?upload_id=a", "/gradio_api//upload", "upload"):
        status, text = served.post(path, FILES, **headers)
        assert (status, text.startswith("the playground takes no files")) == (403, True)
    cache = served.log.parent / "cache"
    assert [file for file in cache.rglob("*") if file.is_file() and b"a stranger" in file.read_bytes()] == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://behind.a.proxy"}, 200),
        ({}, 200),
    ],
)
def test_a_request_that_the_page_of_another_site_sends_is_refused(served, headers, status):
    body = json.dumps({"data": GOOD}).encode()
    assert served.post("gradio_api/call/sample", body, **headers)[0] == status


def test_a_file_that_may_be_on_its_way_is_not_written_again(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    button = gr.DownloadButton()
    first = Path(file_to_send(b"abc", "a/b.png", button))
    inode = first.stat().st_ino
    assert first.read_bytes() == b"abc"
    assert first.name == "a-b.png"
    assert first.is_relative_to(tmp_path)
    assert Path(file_to_send(b"abc", "a/b.png", button)).stat().st_ino == inode
    assert file_to_send(b"abd", "a/b.png", button) != str(first)


def test_a_full_disk_is_a_sentence_that_names_no_folder(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"^the playground has no space left for b\.png: free some where it runs$"):
        file_to_send(b"abc", "b.png", gr.DownloadButton())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_documented_calls_with_curl_draw_the_images_of_the_library(served, tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "demo.md").read_text(encoding="utf-8")
    commands = page.partition("## HTTP API")[2].partition("```bash\n")[2].partition("```")[0]
    assert commands.count("curl ") >= 3
    for written, here in (("http://127.0.0.1:7860/", served.url), ("cifar10-cWC", "plain"), ('"dog"', '"bee"')):
        assert written in commands
        commands = commands.replace(written, here)
    subprocess.run(["bash", "-ec", commands], cwd=tmp_path, check=True, timeout=120)
    images = load_runs(served.runs[1:2], device="cpu")["plain"].sample(16, ["cat", "bee"], seed=1)
    with Image.open(tmp_path / "animals.png") as picture:
        assert picture.tobytes() == images_to_picture(images).tobytes()
    with zipfile.ZipFile(tmp_path / "animals.zip") as archive:
        assert len(archive.namelist()) == 16


def test_no_file_of_the_machine_is_served(served):
    for path in ("/etc/passwd", str(served.runs[1] / "config.yaml")):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(f"{served.url}gradio_api/file={path}", timeout=60)
        refusal.value.close()
        assert refusal.value.code in (403, 404)


def test_the_process_calls_nobody_but_itself(served):
    served.ask("sample", *GOOD)
    calls = served.calls.read_text().splitlines()
    assert calls  # Gradio asks itself whether it has started
    assert [call for call in calls if not call.startswith("('127.0.0.1', ")] == []


def test_it_listens_at_this_machine_alone(served):
    port = int(served.url.rstrip("/").rpartition(":")[2])
    with socket.socket() as other:  # free at another address of this machine, as it would not be if all were taken
        other.bind(("127.0.0.2", port))
    assert served.log.read_text() == f"playground, to open in a browser: {served.url} (stop with Ctrl+C)\n"


def test_a_port_that_is_taken_is_refused_with_a_sentence(built):
    _, port, done = built
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"wcgan: cannot listen on 127.0.0.1:{port}: choose another --host or --port\n"


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_out_of_range_is_refused(served, port):
    with pytest.raises(ValueError, match=f"--port takes 1 to 65535, got {port}"):
        launch(load_runs(served.runs[1:2], device="cpu"), port=port)
