import io

from rich.console import Console

from backends.snapshots.progress import shown_on


def test_without_a_terminal_each_step_is_one_plain_line() -> None:
    out = io.StringIO()
    steps = shown_on(Console(file=out, force_terminal=False))
    with steps("converting weights", 2_500_000) as on_bytes:
        on_bytes(1_000_000)
    with steps("download of x==1", 0):
        pass
    assert out.getvalue() == "converting weights (2.5 MB) ...\ndownload of x==1 ...\n"


def test_on_a_terminal_a_step_moves() -> None:
    out = io.StringIO()
    steps = shown_on(Console(file=out, force_terminal=True, width=120))
    with steps("converting weights", 2_000_000) as on_bytes:
        on_bytes(2_000_000)
    assert "converting weights" in out.getvalue()
    assert "2.0/2.0 MB" in out.getvalue()
