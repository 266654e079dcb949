"""Where a key stands in a file, for whoever has to find it there."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import ConfigInvalid, parse
from gateway.places import line_of, lines

TEXT = """# a comment = 1
[gateway]
listen = [
  "127.0.0.1:1",
]
timout = 5

[[model]]
name = "m"
weights = { "1.5" = -1 }
[model.replicas]
"2" = 1
[[device]]
name = "d"
[[model]]
"name" = '''n
limit = 7
'''
poll.interval_s = 1
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("gateway", 2),
        ("gateway.listen", 3),
        ("gateway.listen[0]", 3),
        ("gateway.timout", 6),
        ("model[0]", 8),
        ("model[0].weights.1.5", 10),
        ("model[0].replicas.2", 12),
        ("device[0].name", 14),
        ("device[0].memory_gb", 13),
        ("model[1].name", 16),
        ("model[1].limit", 15),
        ("model[1].poll.interval_s", 19),
        ("admin.listen", 0),
        ("", 0),
    ],
)
def test_a_key_stands_on_its_line_or_that_of_the_nearest_thing_around_it(
    path: str, line: int
) -> None:
    tomllib.loads(TEXT)
    assert line_of(lines(TEXT), path) == line


@given(st.text())
def test_any_text_has_lines(text: str) -> None:
    assert all(1 <= line <= text.count("\n") + 1 for line in lines(text).values())


def test_every_problem_of_a_file_names_its_line() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse('[poll]\ntimout = 5\n\n[drain]\ngrace_s = "5"\n[[instance]]\nid = "a"\n')
    told = [str(one) for one in caught.value.problems]
    assert told[1] == 'drain.grace_s: must be a number, not "5" (line 5)'
    assert {one.line for one in caught.value.problems} == {2, 5, 6}
