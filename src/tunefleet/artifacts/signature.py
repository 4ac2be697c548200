"""Signatures of artifacts: who wrote `artifact.json`, which holds the SHA-256 of every other file.

Keys are Ed25519 in PEM, the user's own:

    openssl genpkey -algorithm ed25519 -out key.pem
    openssl pkey -in key.pem -pubout -out key.pub
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunefleet.errors import InputError
from tunefleet.system.files import read_small
from tunefleet.system.packages import require

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

#: Beside what it signs.
SUFFIX = ".sig"


def sign(document: Path, key: Path) -> Path:
    """Sign a file with a private key; returns where the signature was written."""
    _check_installed()
    place = document.with_name(document.name + SUFFIX)
    signature = _private_key(key).sign(document.read_bytes())
    place.write_text(base64.b64encode(signature).decode() + "\n", encoding="utf-8")
    return place


def is_signed(document: Path) -> bool:
    """Whether a file has a signature, whoever made it."""
    return document.with_name(document.name + SUFFIX).exists()


def check_signature(content: bytes, document: Path, key: Path) -> None:
    """Raises InputError unless the file beside `document` is the signature of its `content` by the
    owner of a public key."""
    _check_installed()
    from cryptography.exceptions import InvalidSignature

    public = _public_key(key)
    place = document.with_name(document.name + SUFFIX)
    try:
        signature = base64.b64decode(place.read_text(encoding="utf-8").strip(), validate=True)
    except FileNotFoundError:
        raise InputError(
            f"{document.parent} is not signed", cure="sign it: tunefleet sign, or leave the key out"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{place} is not a signature: {error}", cure="copy it again") from error
    try:
        public.verify(signature, content)
    except InvalidSignature:
        raise InputError(
            f"{document.parent} was not signed by the owner of {key}, or was changed since",
            cure="get it from whom you trust",
        ) from None


def _private_key(path: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = _read(path, lambda content: load_pem_private_key(content, password=None))
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path} is no Ed25519 key", cure=_KEYS)
    return key


def _public_key(path: Path) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = _read(path, load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(f"{path} is no Ed25519 key", cure=_KEYS)
    return key


_KEYS = "make one with openssl genpkey -algorithm ed25519; the public half by openssl pkey -pubout"


#: Of a key: it has hundreds.
_MOST_BYTES = 64 << 10


def _read(path: Path, parse: Any) -> Any:
    try:
        return parse(read_small(path, _MOST_BYTES))
    except OSError as error:
        raise InputError(f"cannot read the key {path}: {error.strerror}", cure=_KEYS) from error
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is not that half of a key, in PEM", cure=_KEYS) from error


def _check_installed() -> None:
    """Raises SetupError where the library of keys is not installed."""
    require("a signature", ("cryptography",), "pip install tunefleet[sign]")
