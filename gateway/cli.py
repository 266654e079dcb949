"""The command `sluicegate`: a list of verbs, each loaded when it is called.

Floor 5.
Verbs come from the entry points `sluicegate.commands` of every installed package, so the gateway
starts instances without importing MindSpore, and `status` answers without importing gRPC.
"""

from collections.abc import Sequence
from importlib.metadata import entry_points, version
from typing import Final, cast

import click

GROUP: Final = "sluicegate.commands"


class Verbs(click.Group):
    """Commands by name, from entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(entry_points(group=GROUP).names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = entry_points(group=GROUP, name=cmd_name)
        return cast(click.Command, next(iter(found)).load()) if found else None


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("sluicegate"), prog_name="sluicegate")
def root() -> None:
    """A gateway with lifecycle control for MindSpore large-model inference.

    \b
    sluicegate serve            run the gateway that config.toml describes
    sluicegate status           what runs, what is ready, what is wrong
    sluicegate drain INSTANCE   take an instance out of traffic, losing nothing
    """


def main(arguments: Sequence[str] | None = None) -> None:
    root.main(args=arguments, prog_name="sluicegate")


if __name__ == "__main__":
    main()
