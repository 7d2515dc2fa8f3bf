"""What is left of a run on disk: written by a `Recorder`, read by people, reports and `plan_resume`."""
