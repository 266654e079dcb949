"""`python -m backends.external`: the same as `sluicegate agent`.

Floor 5.
"""

from backends.external.commands import agent

if __name__ == "__main__":
    agent(prog_name="sluicegate agent")
