from backends.snapshots.source import origin_text, same_content, some


def test_content_is_the_same_under_any_name_and_kind() -> None:
    first = origin_text("gguf", "a file.gguf", "12")
    assert same_content(first, origin_text("pypi:x==1", "b.gguf", "12"))
    assert not same_content(first, origin_text("gguf", "a file.gguf", "13"))


def test_only_the_first_few_problems_are_told() -> None:
    assert some(["a", "b"]) == "a; b"
    assert some(list("abcdefg")) == "a; b; c; d; e; and 2 more"
