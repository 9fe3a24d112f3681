"""The distribution of tests to the workers of pytest-xdist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadGroupScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class GroupScheduling(LoadGroupScheduling):
    """`--dist loadgroup` in time that is linear in the number of tests.

    After each test pytest-xdist counts again through all groups that it ever gave to the test's worker. Here groups
    that are done are forgotten; what is distributed, and when, stays the same.
    """

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        super().mark_test_complete(node, item_index, duration)
        assigned = self.assigned_work[node]
        for group in [group for group, tests in assigned.items() if all(tests.values())]:
            del assigned[group]
