"""The reference reader that the end-to-end tests trust, against what real engines printed."""

from __future__ import annotations

import pytest

from daemons import CAPTURES
from golden import read_series, reference_after


@pytest.mark.parametrize("capture", sorted(path.name for path in CAPTURES.iterdir() if path.is_dir()))
def test_reference_reader_prints_what_the_engine_printed_to_the_last_bit(capture: str) -> None:
    folder = CAPTURES / capture
    reference = reference_after(sorted(folder.glob("stream*.bin.gz")))
    assert len(reference) > 300
    assert reference == read_series((folder / "metrics.prom").read_text())
