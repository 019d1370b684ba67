"""The shop's own tests: the fourteen days that an order may be returned take no time. `MODEL=scripted:demo pytest`"""

import shutil
from collections.abc import Iterator
from datetime import timedelta

import pytest
from company import converter, tracing
from shop import Checkout, Order
from shop_agents import clerk
from shop_worker import make_worker
from temporalio.testing import WorkflowEnvironment

import everturn
from everturn.testing import ScriptedModel, call


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ScriptedModel([call("look_up", {"order_id": "81"}), "A desk lamp."]) as scripted:
        monkeypatch.setenv("SCRIPTED_BASE_URL", scripted.base_url)
        monkeypatch.setenv("COMPANY_KEY", "5e" * 32)
        yield


async def test_the_shop_sells_and_the_clerk_answers() -> None:
    async with await WorkflowEnvironment.start_time_skipping(
        data_converter=converter(),
        plugins=[tracing()],
        test_server_existing_path=shutil.which("temporal-test-server"),  # None: it is downloaded
    ) as environment:
        began = await environment.get_current_time()
        async with make_worker(environment.client):
            paid = await environment.client.execute_workflow(
                Checkout.run, Order("81", 3490), id="checkout-81", task_queue="shop"
            )
            conversations = everturn.Client(environment.client, task_queue="shop")
            outcome = await conversations.run(clerk, "What is order 81?")
        passed = await environment.get_current_time() - began
    assert paid == "charged 34.90 EUR for order 81"
    assert outcome.text == "A desk lamp."
    assert passed >= timedelta(days=14)
