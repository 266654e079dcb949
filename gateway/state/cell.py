"""The table in force: published in one assignment, read in one attribute.

Floor 2, no I/O.
Owner: one worker. Whoever reads the table and opens a lease does both in one step, without an
await between: after a table without an instance no lease on it can appear.
"""

from gateway.errors import GatewayError
from gateway.records import RouteTable, Standing
from gateway.routing.compiled import CompiledTable


class Cell:
    __slots__ = ("table",)

    def __init__(self) -> None:
        self.table: CompiledTable | None = None

    def publish(self, table: RouteTable, now_ns: int) -> bool:
        """Serve this table from now on; False for one that is older than the one in force."""
        old = self.table
        if old is not None and table.generation < old.generation:
            return False
        self.table = CompiledTable(table, old, now_ns)
        return True

    def read(self) -> CompiledTable:
        """Raises: GatewayError while there is none: nothing is accepted then, but nothing hangs."""
        if self.table is None:
            raise GatewayError("no_ready_instance", "the gateway holds no routes yet", 1)
        return self.table

    def note(self, standings: dict[str, tuple[Standing, ...]]) -> None:
        """Newer standings for the bodies of refusals; they decide nothing."""
        if self.table is not None:
            for model, newer in standings.items():
                route = self.table.routes.get(model)
                if route is not None:
                    route.standings = newer

    @property
    def generation(self) -> int:
        return self.table.generation if self.table is not None else 0
