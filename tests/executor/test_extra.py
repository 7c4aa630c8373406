"""Without torch and deepspeed the executor says what to install, and the rest works."""

import pytest

from executor.extra import missing_extra


@pytest.mark.parametrize(
    ("absent", "line"),
    [
        ((), None),
        (("deepspeed",), "training needs deepspeed; install the extra: pip install -e '.[executor]' in a checkout"),
        (
            ("torch", "deepspeed"),
            "training needs torch and deepspeed; install the extra: pip install -e '.[executor]' in a checkout",
        ),
    ],
)
def test_missing_packages_are_named(absent: tuple[str, ...], line: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.extra.find_spec", lambda name: None if name in absent else object())
    assert missing_extra() == line
