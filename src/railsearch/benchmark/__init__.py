"""The cost of a search: strategies measured side by side in one run (the paper's Table 3)."""

from railsearch.benchmark.machine import Machine, describe_machine
from railsearch.benchmark.naive import NaiveBruteForce
from railsearch.benchmark.plot import check_plot, plot_intervals, plot_recall_latency
from railsearch.benchmark.report import BenchmarkReport, BenchmarkRow, Latency
from railsearch.benchmark.run import benchmark_shape, run_benchmark
from railsearch.benchmark.scaling import ScalingReport, ScalingRow, measure_scaling, scale_shape

__all__ = [
    "BenchmarkReport",
    "BenchmarkRow",
    "Latency",
    "Machine",
    "NaiveBruteForce",
    "ScalingReport",
    "ScalingRow",
    "benchmark_shape",
    "check_plot",
    "describe_machine",
    "measure_scaling",
    "plot_intervals",
    "plot_recall_latency",
    "run_benchmark",
    "scale_shape",
]
