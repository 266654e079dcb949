from tests.admin.conftest import Api
from tests.admin.fakes import ROLLED_BACK, ROLLOUT, FakeControl


async def test_the_latest_rollout_is_the_first_of_its_model(api: Api, control: FakeControl) -> None:
    document = await (await api.get("/admin/v1/models/m/rollout")).json()
    assert (document["id"], document["verbs"]) == (ROLLOUT.id, ["promote", "pause", "abort"])
    control.rolling = (ROLLED_BACK,)
    assert (await (await api.get("/admin/v1/models/m/rollout")).json())["id"] == ROLLED_BACK.id


async def test_a_model_without_rollouts_and_a_model_that_is_none_are_told_apart(
    api: Api, control: FakeControl
) -> None:
    control.rolling = ()
    codes = []
    for path in ("models/m/rollout", "models/nobody/rollout", "models/nobody/rollouts"):
        answer = await api.get(f"/admin/v1/{path}")
        assert answer.status == 404
        codes.append((await answer.json())["error"]["code"])
    assert codes == ["unknown_rollout", "unknown_model", "unknown_model"]
    document = await (await api.get("/admin/v1/models/m/rollouts")).json()
    assert document == {"generation": 7, "revision": 12, "rollouts": []}


async def test_rollouts_of_one_model_and_of_all(api: Api, control: FakeControl) -> None:
    for path in ("rollouts", "models/m/rollouts"):
        document = await (await api.get(f"/admin/v1/{path}")).json()
        assert [one["id"] for one in document["rollouts"]] == ["m/2", "m/1"]


async def test_a_verb_answers_with_the_rollout_as_it_is_then(
    api: Api, control: FakeControl
) -> None:
    answer = await api.post("/admin/v1/models/m/rollout/pause")
    assert (await answer.json())["rollout"]["id"] == ROLLOUT.id
    control.rolling = ()
    answer = await api.post("/admin/v1/models/m/rollout", json={"version": "2"})
    assert (await answer.json())["rollout"] is None


async def test_a_rollout_is_not_read_with_parameters(api: Api) -> None:
    for path in ("rollouts", "models/m/rollouts", "models/m/rollout"):
        assert (await api.get(f"/admin/v1/{path}?running=1")).status == 422
