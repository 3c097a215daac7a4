"""How good and how fast: ranks of held-out items, and the benchmark of search strategies (the paper's section 4)."""

from railsearch.evaluation.benchmark import benchmark_shape, run_benchmark
from railsearch.evaluation.bm25 import rank_with_bm25
from railsearch.evaluation.machine import Machine, describe_machine
from railsearch.evaluation.naive import NaiveBruteForce
from railsearch.evaluation.plot import check_plot, plot_recall_latency
from railsearch.evaluation.questions import evaluate_questions
from railsearch.evaluation.ranking import Evaluation, evaluate_test
from railsearch.evaluation.report import BenchmarkReport, BenchmarkRow, Latency
from railsearch.evaluation.scaling import ScalingReport, ScalingRow, measure_scaling, scale_shape

__all__ = [
    "BenchmarkReport",
    "BenchmarkRow",
    "Evaluation",
    "Latency",
    "Machine",
    "NaiveBruteForce",
    "ScalingReport",
    "ScalingRow",
    "benchmark_shape",
    "check_plot",
    "describe_machine",
    "evaluate_questions",
    "evaluate_test",
    "measure_scaling",
    "plot_recall_latency",
    "rank_with_bm25",
    "run_benchmark",
    "scale_shape",
]
