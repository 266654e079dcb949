from pathlib import Path

import pytest

from backends.snapshots.roots import Root, Url, read_root


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("var/models", Path("var/models")),
        ("/srv/models", Path("/srv/models")),
        ("file:///srv/models", Path("/srv/models")),
        ("local://var/models", Path("var/models")),
        ("s3://bucket/models/", Url("s3://bucket/models")),
        ("memory://models", Url("memory://models")),
    ],
)
def test_a_root_is_a_folder_or_a_url(text: str, root: Root) -> None:
    assert read_root(text) == root
    assert str(read_root(str(root))) == str(root)
