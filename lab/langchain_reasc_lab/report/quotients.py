"""The paper's quotients: accuracy per TFLOP, and how much less than a reference something is."""

__all__ = ["accuracy_per_tflop", "change"]


def accuracy_per_tflop(accuracy: float, tflops: float) -> float:
    """Acc/TF: accuracy in per cent, per 10¹² operations of the average question."""
    return accuracy / tflops


def change(value: float, reference: float) -> float:
    """How much more than the reference, in per cent; below zero where it is less."""
    return 100 * (value / reference - 1)
