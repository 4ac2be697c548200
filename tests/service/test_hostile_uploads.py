"""Files that are sent to the service are checked, with what a job says of them too."""

from __future__ import annotations

import hashlib
import io
import pickle
import zipfile
from typing import Any

import numpy as np
import pytest

from .conftest import World
from .test_uploads import PART

pytestmark = [pytest.mark.tvm, pytest.mark.frameworks]


def small_network(extent: int | str) -> bytes:
    """A product, an ONNX file."""
    from onnx import TensorProto, helper

    weights = helper.make_tensor("w", TensorProto.FLOAT, (8, 4), np.linspace(-1, 1, 32).tolist())
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, extent))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4))
    made = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights]
    )
    opset = [helper.make_opsetid("", 18)]
    return bytes(helper.make_model(made, opset_imports=opset, ir_version=9).SerializeToString())


class Code:
    """Runs a command where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("open('ran', 'w').close()",)


def sent(world: World, headers: dict[str, str], name: str, content: bytes) -> Any:
    digest = hashlib.sha256(content).hexdigest()
    asked = {"digest": digest, "name": name, "size": len(content)}
    assert world.client.post("/v1/uploads", json=asked, headers=headers).status_code == 201
    part = {**headers, **PART, "Upload-Offset": "0"}
    return world.client.patch(f"/v1/uploads/{digest}", content=content, headers=part)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.onnx", b"garbage" * 99),
        ("a.pt2", pickle.dumps(Code())),
        ("a.zip", pickle.dumps(Code())),
        ("a.npy", pickle.dumps(Code())),
    ],
)
def test_no_code_runs_and_no_bug_is_reported(checking: World, name: str, content: bytes) -> None:
    ann = checking.user("ann")
    answer = sent(checking, ann, name, content)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert (name in problem["detail"], bool(problem["cure"])) == (True, True)
    assert str(checking.home) not in answer.text
    job = {"network": hashlib.sha256(content).hexdigest(), "budget": {"trials": 4}}
    assert checking.client.post("/v1/jobs", json=job, headers=ann).status_code == 404
    assert list(checking.home.rglob("ran")) == []
    assert list(checking.home.glob("bugs/*")) == []
    assert [path for path in (checking.home / "uploads").rglob("*") if path.is_file()] == []
    assert not any((checking.home / "networks").glob("*"))


def test_a_network_of_free_dimensions_is_checked_with_those_of_its_job(checking: World) -> None:
    ann = checking.user("ann")
    network = sent(checking, ann, "a.onnx", small_network("width")).json()["network"]
    job = {"network": network["digest"], "budget": {"trials": 4}, "threads": 1}
    refused = checking.client.post("/v1/jobs", json=job, headers=ann)
    assert refused.status_code == 422
    assert "a.onnx has free dimensions: width" in refused.json()["detail"]
    assert checking.store.jobs.page() == []
    created = checking.client.post("/v1/jobs", json={**job, "dims": {"width": 8}}, headers=ann)
    assert created.status_code == 201, created.text
    assert [made.job_id for made in checking.store.jobs.page()] == [created.json()["id"]]


def test_a_folder_is_sent_as_an_archive_and_calibrated_in_int8(checking: World) -> None:
    ann = checking.user("ann")
    packed, samples = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("net/a.onnx", small_network(8))
    np.savez(samples, x=np.random.default_rng(0).random((4, 1, 8), np.float32))
    network = sent(checking, ann, "net.zip", packed.getvalue()).json()["network"]
    arrays = sent(checking, ann, "samples.npz", samples.getvalue()).json()["network"]
    assert (network["kind"], arrays["kind"]) == ("network", "arrays")
    job = {"network": network["digest"], "precision": "int8", "budget": {"trials": 4}}
    without = checking.client.post("/v1/jobs", json=job, headers=ann)
    assert (without.status_code, "calibration" in without.json()["detail"]) == (422, True)
    wrong = {**job, "calibrate": network["digest"]}
    assert checking.client.post("/v1/jobs", json=wrong, headers=ann).status_code == 422
    asked = {**job, "calibrate": arrays["digest"]}
    created = checking.client.post("/v1/jobs", json=asked, headers=ann)
    assert created.status_code == 201, created.text
    assert created.json()["network"] == "a-int8"


def test_inputs_to_measure_with_are_sent_too(checking: World) -> None:
    ann, given = checking.user("ann"), io.BytesIO()
    np.savez(given, x=np.ones((1, 8), np.float32))
    network = sent(checking, ann, "a.onnx", small_network(8)).json()["network"]
    inputs = sent(checking, ann, "x.npz", given.getvalue()).json()["network"]
    job = {"network": network["digest"], "inputs": [inputs["digest"]], "budget": {"trials": 4}}
    created = checking.client.post("/v1/jobs", json=job, headers=ann)
    assert created.status_code == 201, created.text
    source = checking.store.jobs.get(created.json()["id"]).spec.source
    assert source is not None
    [file] = source.options.inputs
    assert (checking.home / file.path).read_bytes() == given.getvalue()
