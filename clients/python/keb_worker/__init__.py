"""Step workers of KEB in Python. README.md shows how to write one."""

from .operation import (
    Operation, Outcome, Override, StageLost, Step, StepError, Unavailable, not_completed, retry, retry_without_fail, skip, step, wait,
    wait_for_event)

__all__ = ["Operation", "Outcome", "Override", "StageLost", "Step", "StepError", "Unavailable", "not_completed", "retry",
           "retry_without_fail", "skip", "step", "wait", "wait_for_event"]
