from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tunefleet
from tunefleet.artifacts.signature import sign
from tunefleet.cli.app import run
from tunefleet.errors import InputError

pytestmark = pytest.mark.tvm


def keys(folder: Path, name: str) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return private, public


@pytest.fixture
def copied(artifact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(artifact, tmp_path / "copied"))


def test_a_signed_artifact_is_its_owners(copied: Path, tmp_path: Path) -> None:
    private, public = keys(tmp_path, "mine")
    _, other = keys(tmp_path, "other")
    with pytest.raises(InputError, match="is not signed"):
        tunefleet.load(copied, signed_by=public)
    sign(copied / "artifact.json", private)
    tunefleet.load(copied, signed_by=public).close()
    with pytest.raises(InputError, match="was not signed by the owner"):
        tunefleet.load(copied, signed_by=other)


def test_a_change_after_the_signature_is_seen(copied: Path, tmp_path: Path) -> None:
    private, public = keys(tmp_path, "mine")
    sign(copied / "artifact.json", private)
    path = copied / "artifact.json"
    path.write_text(path.read_text().replace("tiny_cnn", "tiny_cnm"))
    with pytest.raises(InputError, match="changed since"):
        tunefleet.load(copied, signed_by=public)


@pytest.mark.parametrize("name", ["report.html", "README.md", "records.jsonl", "module.so"])
@pytest.mark.parametrize("change", ["changed", "removed"])
def test_a_change_of_any_file_is_seen(
    copied: Path, tmp_path: Path, name: str, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    private, public = keys(tmp_path, "mine")
    sign(copied / "artifact.json", private)
    if change == "removed":
        (copied / name).unlink()
    else:
        (copied / name).write_bytes((copied / name).read_bytes() + b" ")
    with pytest.raises(InputError, match=name):
        tunefleet.load(copied, signed_by=public)
    assert run(["sign", str(copied), "--key", str(private)]) == 2
    assert name in capsys.readouterr().err


@pytest.mark.parametrize("name", ["segments/a.onnx", "b.so", "notes.txt"])
def test_a_file_that_nobody_signed_is_refused(copied: Path, tmp_path: Path, name: str) -> None:
    private, public = keys(tmp_path, "mine")
    sign(copied / "artifact.json", private)
    (copied / name).parent.mkdir(exist_ok=True)
    (copied / name).write_text("more")
    with pytest.raises(InputError, match=f"{name} is not of this artifact"):
        tunefleet.load(copied, signed_by=public)


@pytest.mark.parametrize("damage", ["missing", "text", "private"])
def test_a_wrong_key_is_refused(copied: Path, tmp_path: Path, damage: str) -> None:
    private, _ = keys(tmp_path, "mine")
    sign(copied / "artifact.json", private)
    key = tmp_path / "key.pub"
    if damage != "missing":
        key.write_bytes(b"text" if damage == "text" else private.read_bytes())
    with pytest.raises(InputError, match=r"cannot read the key|is not that half of a key"):
        tunefleet.load(copied, signed_by=key)


def test_a_device_without_an_end_is_no_key(copied: Path) -> None:
    with pytest.raises(InputError, match="/dev/zero has more than 64 KiB"):
        tunefleet.load(copied, signed_by="/dev/zero")
