"""Files that are no networks, sent to the service: refused when a job asks for them."""

from __future__ import annotations

import hashlib
import pickle

import pytest

from .conftest import World
from .test_uploads import PART

pytestmark = [pytest.mark.tvm, pytest.mark.frameworks]


class Code:
    """Runs a command where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("open('ran', 'w').close()",)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.onnx", b"garbage" * 99),
        ("a.pt2", pickle.dumps(Code())),
        ("a.onnx", pickle.dumps(Code())),
    ],
)
def test_no_code_runs_and_no_bug_is_reported(world: World, name: str, content: bytes) -> None:
    ann, digest = world.user("ann"), hashlib.sha256(content).hexdigest()
    asked = {"digest": digest, "name": name, "size": len(content)}
    world.client.post("/v1/uploads", json=asked, headers=ann)
    headers = {**ann, **PART, "Upload-Offset": "0"}
    world.client.patch(f"/v1/uploads/{digest}", content=content, headers=headers)
    job = {"network": digest, "threads": 1, "budget": {"trials": 4}}
    answer = world.client.post("/v1/jobs", json=job, headers=ann)
    assert answer.status_code in (201, 422), answer.text
    assert list(world.home.rglob("ran")) == []
    assert list(world.home.glob("bugs/*")) == []
