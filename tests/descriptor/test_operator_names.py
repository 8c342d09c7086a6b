"""The operators named by rules exist: a rule with a misspelt name would never apply."""

from __future__ import annotations

from pathlib import Path

import pytest

from socsched.descriptor.operator_rules import OPERATORS, load_rules
from socsched.errors import DescriptorError


@pytest.mark.parametrize(("right", "wrong"), [("conv2d", "conv2dd"), ("softmax", "soft_max")])
def test_a_misspelt_operator_is_found_with_the_right_name(
    right: str, wrong: str, checkout: Path, tmp_path: Path
) -> None:
    file = next(
        path for path in sorted((checkout / "platforms/rules").glob("*.yaml")) if f"\n  {right}:" in path.read_text()
    )
    broken = tmp_path / file.name
    broken.write_text(file.read_text().replace(f"\n  {right}:", f"\n  {wrong}:", 1))
    with pytest.raises(DescriptorError) as caught:
        load_rules(broken)
    assert f"unknown operator {wrong!r}" in str(caught.value) and right in str(caught.value)


def test_every_operator_that_networks_are_read_as_has_a_name_in_rules() -> None:
    from socsched.compiler.passes.fusion import _KINDS
    from socsched.graph.counting import ELEMENTWISE

    assert {kind for kind, _ in _KINDS.values()} | ELEMENTWISE <= OPERATORS
