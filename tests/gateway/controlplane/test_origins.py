from gateway.control import DrainInstance, SetInstanceWeight, SetWeights
from gateway.controlplane.origins import origins
from gateway.fleet.events import Asked
from tests.gateway.fleet.builders import STATICS, begun, both_ready, play


def test_what_stands_above_the_file_is_run_time_and_a_reset_or_undrain_is_not_there() -> None:
    fleet = both_ready()
    before = origins(fleet)
    assert before["model.m.weights.1"] == {"value": 100.0, "origin": "file"}
    assert before["instance.a.weight"] == {"value": 1.0, "origin": "default"}
    assert "instance.a.intent" not in before
    for ask in (
        SetWeights("m", {"1": 7.0}),
        SetInstanceWeight("a", 3.0),
        DrainInstance("a", None, False, False),
    ):
        fleet, _ = play(fleet, Asked(1, ask, False, None, 10.0))
    after = origins(fleet)
    assert after["model.m.weights.1"] == {"value": 7.0, "origin": "run-time"}
    assert after["instance.a.weight"] == {"value": 3.0, "origin": "run-time"}
    assert after["instance.a.intent"] == {"value": "drain", "origin": "run-time"}


def test_the_path_of_a_webhook_s_url_is_not_shown() -> None:
    text = STATICS + "[[webhook]]\nname = 'chat'\nurl = 'https://h.example.org/T0/tok3n?k=1'\n"
    found = origins(begun(text))
    assert found["webhook.chat.url"] == {"value": "https://h.example.org/...", "origin": "file"}
    assert "tok3n" not in str(found)
