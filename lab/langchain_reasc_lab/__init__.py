"""The laboratory beside :mod:`langchain_reasc`: recording, grading, replay and reports."""
