import hashlib
from pathlib import Path

from backends.snapshots.checksum import file_sha256


def test_the_checksum_is_that_of_sha256sum_and_every_byte_is_told(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000  # more than two chunks
    (tmp_path / "x").write_bytes(content)
    told: list[int] = []
    assert file_sha256(tmp_path / "x", told.append) == hashlib.sha256(content).hexdigest()
    assert sum(told) == len(content)
    assert len(told) > 2
