import pytest

from admin.answers import check, checked
from admin.refusals import Refused
from gateway.control import Problem
from tests.admin.conftest import Api
from tests.admin.fakes import FakeControl


async def test_an_unknown_path_is_404_in_json(api: Api) -> None:
    answer = await api.get("/admin/v2/status")
    assert answer.status == 404
    assert await answer.json() == {
        "error": {
            "code": "unknown_path",
            "message": "/admin/v2/status: see /admin/v1/openapi.json",
        }
    }


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/admin/v1/status", "GET, HEAD"),
        ("GET", "/admin/v1/config/reload", "POST"),
        ("GET", "/admin/v1/instances/i/drain", "DELETE, PUT"),
        ("GET", "/admin/v1/models/m/weights", "DELETE, PUT"),
        ("PATCH", "/admin/v1/instances", "GET, HEAD, POST"),
        ("HEAD", "/admin/v1/events", "GET"),
        ("DELETE", "/metrics", "GET, HEAD"),
    ],
)
async def test_a_wrong_method_is_405_with_what_is_allowed(
    api: Api, control: FakeControl, method: str, path: str, allowed: str
) -> None:
    answer = await api.request(method, path)
    assert (answer.status, answer.headers["Allow"]) == (405, allowed)
    assert control.asked == []
    if method != "HEAD":
        assert (await answer.json())["error"]["code"] == "method_refused"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
async def test_a_change_asked_by_a_page_of_another_site_is_refused(
    api: Api, control: FakeControl, origin: str
) -> None:
    answer = await api.post("/admin/v1/config/reload", headers={"Origin": origin})
    assert answer.status == 403
    assert (await answer.json())["error"]["code"] == "foreign_site"
    assert control.asked == []


async def test_our_own_pages_may_change_things(api: Api, control: FakeControl) -> None:
    own = f"http://{api.host}:{api.port}"
    answer = await api.post("/admin/v1/config/reload", headers={"Origin": own})
    assert answer.status == 200
    assert len(control.asked) == 1


async def test_a_name_that_was_rebound_to_us_is_refused_even_to_read(api: Api) -> None:
    answer = await api.get("/admin/v1/leases", headers={"Host": "evil.example:9901"})
    assert answer.status == 403
    assert (await answer.json())["error"] == {
        "code": "foreign_host",
        "message": "asked for as evil.example:9901: use an IP address, or localhost, instead",
    }


async def test_a_refusal_carries_no_stack_and_no_html(api: Api) -> None:
    answer = await api.get("/admin/v1/nowhere/<b>")
    assert answer.content_type == "application/json"
    assert "Traceback" not in await answer.text()


def test_problems_become_a_refusal_with_all_of_them() -> None:
    problems = (Problem("a", "is missing"), Problem("b", "is wrong"))
    for reject in (check, checked):
        with pytest.raises(Refused) as refused:
            reject(problems)
        assert refused.value.message == "a: is missing; b: is wrong"
        assert refused.value.problems == problems
    check(())
    assert checked("value") == "value"
