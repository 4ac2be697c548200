from __future__ import annotations

from dataclasses import replace

import pytest

from tunefleet.compiler.toolchain.host import native_target
from tunefleet.devices import doctor

pytestmark = pytest.mark.tvm


def test_vectors_that_llvm_would_not_prefer_are_no_hidden_instructions(monkeypatch):
    target = native_target()
    kept = tuple(attribute for attribute in target.mattr if not attribute.startswith("-"))
    wide = replace(target, mattr=(*kept, "-prefer-256-bit"))
    monkeypatch.setattr(doctor, "native_target", lambda: wide)
    assert doctor._isa()["severity"] == "ok"
