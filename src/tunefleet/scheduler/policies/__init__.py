"""Policies by name."""

from tunefleet.scheduler.policies._base import Policy, PolicyView, Queue, Queues
from tunefleet.scheduler.policies.predictive import Predictive
from tunefleet.scheduler.policies.simple import Interleaved, Sequential, Synchronous

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Sequential, Synchronous, Interleaved, Predictive)
}

__all__ = [
    "POLICIES",
    "Interleaved",
    "Policy",
    "PolicyView",
    "Predictive",
    "Queue",
    "Queues",
    "Sequential",
    "Synchronous",
]
