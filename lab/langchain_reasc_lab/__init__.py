"""The laboratory of :mod:`langchain_reasc`: recording, grading, replay and reports."""
