"""docs/benchmarks.md, whole, from the samples of one run.

Floor 1, pure.
What is always the same stands here, so that one run writes the file and nobody edits it.
"""

from collections.abc import Sequence

from tests.bench.report import OURS, OWN, PLAIN, Sample, ratio_table, table
from tests.bench.targets import verdicts


def document(
    samples: Sequence[Sample],
    contenders: Sequence[str],
    facts: Sequence[str],
    notes: Sequence[str],
) -> str:
    """Shape: `facts` of the run and `notes` on what is missing are a line each."""
    own = table(samples, [one for one in (OURS, PLAIN) if one in contenders], OWN)
    return f"""# Benchmarks

Written by `make bench`. `tests/bench/README.md` says what each figure means, how it is measured,
and where the time goes. Medians over turns, smallest and largest in brackets; ratios are taken
inside turns. CPU time is that of the processes that relay, user and kernel.

{_listed(facts)}

## Targets

Of the compiled data plane, where nothing else is said.

{verdicts(samples)}

## Beside others

Less is better in every row but requests/s. nginx and HAProxy add a request id and a forwarding
field and read no body; the routers read the body and balance by turns; Sluicegate routes by the
body's model and counts, times and leases every request.

{table(samples, contenders) or "Nothing was measured."}

{ratio_table(samples, contenders)}
{_noted(notes)}
## Sluicegate alone

Two workers share the proxy's core, as one has it to itself: what is compared is CPU time per
request, and that needs no second core. Requests over 10, 100 and 1,000 instances reach a worker
whose table the benchmark publishes; a pick is the version's draw and the instance's pick together.
Streams at once need two descriptors each in a worker: where a process may have no more than they
need, two workers share them. Stalled: memory of the worker for each of eight at once.

{own or "Nothing was measured."}
"""


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _noted(notes: Sequence[str]) -> str:
    return f"\nMissing from this run:\n\n{_listed(notes)}\n" if notes else ""
