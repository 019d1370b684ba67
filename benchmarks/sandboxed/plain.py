"""A workflow without everturn."""

from temporalio import workflow


@workflow.defn
class Asks:
    @workflow.run
    async def run(self) -> str:
        return ""
