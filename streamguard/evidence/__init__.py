"""What is left of a run on disk: written by a `Recorder`, read by people, reports and `plan_resume`."""

from __future__ import annotations

from streamguard._base.lazy import lazy

TYPE_CHECKING = False

if TYPE_CHECKING:
    from streamguard.evidence.recorder import Recorder, record_with
    from streamguard.evidence.resuming import ResumePlan, plan_resume, resume_from
    from streamguard.evidence.secrets import Redaction
    from streamguard.evidence.surroundings import Artifact

__all__ = [
    "Artifact",
    "Recorder",
    "Redaction",
    "ResumePlan",
    "plan_resume",
    "record_with",
    "resume_from",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "recorder": ("Recorder", "record_with"),
        "resuming": ("ResumePlan", "plan_resume", "resume_from"),
        "secrets": ("Redaction",),
        "surroundings": ("Artifact",),
    },
)
