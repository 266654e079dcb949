from xml.etree import ElementTree

from tests.sim.rollouts.svg import LEFT, RIGHT, WIDTH, Axis, Line, chart


def drawn() -> str:
    lines = [Line("a < b", ((1, 0), (10, 0.5), (1000, 2)))]
    return chart("title", Axis("across", (1, 10, 100), True), Axis("up", (0, 1)), lines)


def test_a_chart_is_xml_and_the_same_each_time() -> None:
    assert ElementTree.fromstring(drawn()).tag.endswith("svg")
    assert drawn() == drawn()


def test_what_lies_beyond_the_axes_is_drawn_at_their_ends() -> None:
    assert f"{LEFT:.1f},344.0" in drawn()
    assert f"{WIDTH - RIGHT:.1f},40.0" in drawn()
