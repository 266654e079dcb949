"""One command's part of a document is no other command's business."""

from tests.bench.parts import keeping_parts, part, with_part

OTHERS = "# Benchmarks\n\nA table.\n"


def test_a_part_is_added_at_the_end_and_replaced_in_its_place() -> None:
    once = with_part(OTHERS, "one", "first\n")
    assert once == f"{OTHERS}\n<!-- begin: one -->\nfirst\n<!-- end: one -->\n"
    more = with_part(once, "two", "second") + "\nAn end.\n"
    again = with_part(more, "one", "third")
    assert again == more.replace("first", "third")


def test_a_document_that_is_written_anew_keeps_the_parts_of_other_commands() -> None:
    old = with_part(with_part(OTHERS, "one", "1"), "two", "2")
    new = keeping_parts(old, "# Benchmarks\n\nAnother table.\n")
    assert new.startswith("# Benchmarks\n\nAnother table.\n\n")
    assert new.count("A table.") == 0
    assert new.endswith(f"{part('one', '1')}\n{part('two', '2')}")
    assert keeping_parts(old, new) == new


def test_a_document_without_parts_is_left_alone() -> None:
    assert keeping_parts(OTHERS, "new\n") == "new\n"
    assert with_part("", "one", "1") == part("one", "1")
