"""Plans and pools for the tests of decoding and combining."""

from __future__ import annotations

from collections.abc import Sequence

from client_sdk.plan import Plan, parse_plan
from collector.combination import Pool


def make_plan(version: int = 1, epsilon: str = "1.0", categories: Sequence[str] = ("x", "y"), other: str = "") -> Plan:
    quoted = ", ".join(f'"{category}"' for category in categories)
    return parse_plan(f"""
[plan]
name = "p"
version = {version}
period = "1d"
[cohort]
min_size = 2
target_size = 10
max_wait = "30s"
[budget]
lifetime = 365
[metrics.colour]
kind = "categorical"
categories = [{quoted}]
{f'other = "{other}"' if other else ""}
epsilon = {epsilon}
[metrics.seconds]
kind = "numeric"
lower = -10
upper = 10
epsilon = {epsilon}
""")


def pool(plan: Plan, metric: str, totals: Sequence[int], contributors: int) -> Pool:
    made = Pool(plan.metrics[metric])
    made.add(totals, contributors)
    return made


def plan_of(metrics: str, *, version: int = 1, sample: int | None = None, min_size: int = 2) -> Plan:
    """A plan of these [metrics.*] tables."""
    return parse_plan(f"""
[plan]
name = "p"
version = {version}
period = "1d"
{f"sample_metrics = {sample}" if sample else ""}
[cohort]
min_size = {min_size}
target_size = {10 * min_size}
max_wait = "30s"
[budget]
lifetime = 365
{metrics}
""")


SAMPLED = plan_of(
    """
[metrics.colour]
kind = "categorical"
categories = ["x", "y"]
epsilon = 1
[metrics.seconds]
kind = "numeric"
lower = -10
upper = 10
epsilon = 3
[metrics.shape]
kind = "categorical"
categories = ["round", "square", "other"]
epsilon = 2
""",
    sample=2,
)
"""Each report holds two of three metrics. Cells: colour 2 + count, seconds 1 + count, shape 3 + count."""
