"""The commands, in-process where that is the same, in a process of their own where it is not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import railsearch
from railsearch.cli import app as commands
from railsearch.cli import main
from railsearch.cli.app import app
from railsearch.cli.doctor import diagnose
from railsearch.foundation.bf16 import MATMUL_PROBE, Bf16Matmul, survives
from railsearch.foundation.errors import InvalidInputError

RUNNER = CliRunner()


def run(*arguments: str) -> str:
    result = RUNNER.invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_help_teaches() -> None:
    text = run("--help")
    for command in ("bench", "demo", "doctor", "train", "evaluate", "recommend"):
        assert command in text
    assert "more than a dot product" in " ".join(text.split())


@pytest.mark.parametrize("command", ["bench", "demo", "doctor", "train", "evaluate", "recommend"])
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    text = run(command, "--help")
    assert f"Example: railsearch {command}" in text
    assert "--json" in text


def test_version() -> None:
    assert run("--version").strip() == railsearch.__version__


def test_installed_command() -> None:
    command = Path(sys.executable).with_name("railsearch")
    completed = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == railsearch.__version__


def test_unknown_command() -> None:
    result = RUNNER.invoke(app, ["serch"])
    assert result.exit_code == 2
    assert "serch" in result.output


def test_user_errors_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse() -> None:
        raise InvalidInputError("pip install 'numpy[faiss]'; " + "long " * 30)

    monkeypatch.setattr(commands, "app", refuse)
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err == "error: pip install 'numpy[faiss]'; " + "long " * 30 + "\n"


def test_doctor() -> None:
    report = json.loads(run("doctor", "--json"))
    assert report["versions"]["railsearch"] == railsearch.__version__
    assert report["num_threads"] >= 1
    assert report["bf16_matmul"] in list(Bf16Matmul)
    text = run("doctor")
    for word in ("torch", "device", "threads", "bf16 matmul"):
        assert word in text


def test_illegal_instruction_is_a_finding_and_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    die = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    assert not survives(die)
    assert survives("pass")
    monkeypatch.setattr("railsearch.foundation.bf16.MATMUL_PROBE", die)
    assert diagnose().bf16_matmul is Bf16Matmul.UNSAFE
    assert "fails or kills the process; use fp32" in run("doctor")
    spared = "import os, signal\nif not os.environ.get('ONEDNN_MAX_CPU_ISA'): os.kill(os.getpid(), signal.SIGILL)"
    monkeypatch.setattr("railsearch.foundation.bf16.MATMUL_PROBE", spared)
    assert diagnose().bf16_matmul is Bf16Matmul.SAFE_WITHOUT_AMX
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in run("doctor")


def test_probe_fails_on_a_wrong_product() -> None:
    assert not survives(MATMUL_PROBE.replace("256.0", "255.0"))


@pytest.fixture
def small_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    original = commands.run_demo

    def smaller(**options: object) -> object:
        return original(**{**options, "num_users": 80, "num_items": 60})

    monkeypatch.setattr(commands, "run_demo", smaller)


@pytest.mark.usefixtures("small_demo")
def test_demo_tells_the_story() -> None:
    text = run("demo", "--epochs", "2")
    for words in (
        "cosine",
        "Mixture of Logits",
        "planted truth",
        "HR@1",
        "HR@50",
        "MRR",
        "certified exact",
        "meets aspect",
    ):
        assert words in text


@pytest.mark.usefixtures("small_demo")
def test_demo_as_json() -> None:
    chapters = json.loads(run("demo", "--epochs", "1", "--seed", "3", "--json"))["chapters"]
    names = [chapter["name"] for chapter in chapters if "name" in chapter]
    assert names == ["cosine", "Mixture of Logits", "planted truth"]
    weights = [sum(map(sum, chapter["gate_weights"])) for chapter in chapters if "gate_weights" in chapter]
    assert weights == [pytest.approx(1.0, abs=1e-5)] * len(weights)
    assert weights


@pytest.mark.slow
def test_demo_shows_that_the_mixture_wins() -> None:
    chapters = json.loads(run("demo", "--json"))["chapters"]
    quality = {chapter["name"]: chapter["metrics"] for chapter in chapters if "name" in chapter}
    assert quality["Mixture of Logits"]["HR@10"] > 3 * quality["cosine"]["HR@10"]
    assert quality["planted truth"]["HR@10"] > quality["Mixture of Logits"]["HR@10"]
