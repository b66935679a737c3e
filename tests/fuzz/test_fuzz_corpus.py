"""Small files that once led to something other than one of our errors."""

from __future__ import annotations

import shutil
from pathlib import Path

import fuzz_kinds as kinds
import pytest

from metaroll.errors import DamagedFileError

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", sorted(path.name for path in CORPUS.iterdir()))
def test_a_file_that_once_failed_is_refused(tmp_path: Path, name: str) -> None:
    """The name of a corpus file is kind, damage and name, separated by @."""
    mark, file = name.split("@")[0], name.split("@")[-1]
    kind = next(kind for known, kind in kinds.KINDS.items() if known.replace(" ", "-") == mark)
    kind.make(tmp_path)
    [place] = [path for path in tmp_path.rglob(file) if path.is_file()]
    shutil.copyfile(CORPUS / name, place)
    if mark == "simulations":  # what is damaged is simulated again
        kind.read(tmp_path)
        return
    with pytest.raises(DamagedFileError, match=file.replace(".", r"\.") if mark != "snapshot" else "snapshot 1"):
        kind.read(tmp_path)
