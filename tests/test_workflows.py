"""The workflows keep the rules (zizmor, GitHub's schema, shellcheck), and each command runs here as far as it can.

Every rule has a control: the same workflow with one fault, which must be found.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from nbclient.exceptions import DeadKernelError

from tools import colab
from tools.files import ROOT

HERE = Path(sys.executable).parent
NAMES = ("publish", "test", "weekly")
# Who may write what. Everything else may read the repository, and no more.
WRITERS = {
    ("publish", "deploy"): {"pages": "write", "id-token": "write"},
    ("weekly", "report"): {"contents": "read", "issues": "write"},
}
PINNED = re.compile(r"[\w-]+/[\w-]+@(v\d+|[0-9a-f]{40})|docker://[\w./-]+:\d+\.\d+\.\d+")


def workflow(name: str, github: Path = ROOT / ".github") -> dict[str, Any]:
    return yaml.safe_load((github / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))


def steps(flow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in flow["jobs"].values() for step in job["steps"]]


def commands(name: str, job: str | None = None) -> list[str]:
    """What a workflow runs in a shell, or one job of it."""
    jobs = workflow(name)["jobs"]
    return [step["run"] for key in ([job] if job else jobs) for step in jobs[key]["steps"] if "run" in step]


ALL_COMMANDS = [command for name in NAMES for command in commands(name)]


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, **options)


def zizmor(github: Path) -> subprocess.CompletedProcess[str]:
    return run(HERE / "zizmor", "--offline", "--no-progress", "--strict-collection", github)


def schema(github: Path) -> subprocess.CompletedProcess[str]:
    flows = sorted((github / "workflows").glob("*.yml"))
    return run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", *flows)


@pytest.fixture
def github(tmp_path: Path) -> Path:
    """A copy of .github, to put a fault into."""
    return shutil.copytree(ROOT / ".github", tmp_path / ".github")


def spoil(github: Path, name: str, right: str, wrong: str) -> None:
    path = github / "workflows" / f"{name}.yml"
    text = path.read_text(encoding="utf-8")
    assert right in text
    path.write_text(text.replace(right, wrong, 1), encoding="utf-8")


def test_zizmor_finds_nothing() -> None:
    found = zizmor(ROOT / ".github")
    assert found.returncode == 0, found.stdout + found.stderr
    for name in NAMES:
        assert f"workflows/{name}.yml" in found.stderr, "zizmor says which files it read"


@pytest.mark.parametrize(
    ("right", "wrong", "finding"),
    [
        ("actions/checkout@v7", "ada/checkout@v7", "unpinned-uses"),
        ("actions/checkout@v7", f"ada/checkout@{'a' * 40}", "forbidden-uses"),
        ("permissions:\n  contents: read\n", "permissions: write-all\n", "excessive-permissions"),
        ("run: .ci/run", "run: echo ${{ github.event.head_commit.message }}", "template-injection"),
        ("  pull_request:\n", "  pull_request_target:\n", "dangerous-triggers"),
        ("        with:\n          persist-credentials: false\n", "", "artipacked"),
        ("runs-on:", "runs_on:", "does not match expected validation schema"),
    ],
)
def test_zizmor_finds_a_fault(github: Path, right: str, wrong: str, finding: str) -> None:
    spoil(github, "test", right, wrong)
    found = zizmor(github)
    assert found.returncode != 0
    assert finding in found.stdout + found.stderr


def test_workflows_meet_githubs_schema_and_a_misspelt_key_does_not(github: Path) -> None:
    assert sorted(path.stem for path in (github / "workflows").iterdir()) == list(NAMES)
    good = schema(github)
    assert good.returncode == 0, good.stdout
    spoil(github, "test", "timeout-minutes", "timeout-minute")
    bad = schema(github)
    assert bad.returncode == 1
    assert "'timeout-minute' was unexpected" in bad.stdout


def unpinned(flow: dict[str, Any]) -> list[str]:
    used = [step["uses"] for step in steps(flow) if "uses" in step]
    return [each for each in used if not PINNED.fullmatch(each)]


def writers(flows: dict[str, dict[str, Any]]) -> dict[tuple[str, str], dict[str, str]]:
    """The jobs with other permissions than to read the repository."""
    granted = {
        (name, key): job.get("permissions", flow["permissions"])
        for name, flow in flows.items()
        for key, job in flow["jobs"].items()
    }
    return {job: given for job, given in granted.items() if given != {"contents": "read"}}


def test_actions_are_pinned_and_permissions_least(github: Path) -> None:
    assert [unpinned(workflow(name)) for name in NAMES] == [[], [], []]
    assert writers({name: workflow(name) for name in NAMES}) == WRITERS
    spoil(github, "test", "actions/checkout@v7", "actions/checkout@main")
    spoil(github, "test", "actionlint:1.7.12", "actionlint:latest")
    spoil(github, "test", "contents: read", "contents: write")
    assert unpinned(workflow("test", github)) == ["actions/checkout@main", "docker://rhysd/actionlint:latest"]
    assert ("test", "oldest") in writers({"test": workflow("test", github)})


def test_a_job_that_may_write_runs_no_code_but_the_report() -> None:
    ran = {job: [step["run"] for step in workflow(job[0])["jobs"][job[1]]["steps"] if "run" in step] for job in WRITERS}
    assert ran == {("publish", "deploy"): [], ("weekly", "report"): [".github/report"]}


def test_shell_steps_pass_shellcheck_and_a_careless_one_does_not() -> None:
    shellcheck = [HERE / "shellcheck", "--shell=bash", "--severity=style"]
    scripts = run(*shellcheck, ".github/report", ".ci/run", cwd=ROOT)
    assert scripts.returncode == 0, scripts.stdout
    inline = run(*shellcheck, "-", input="\n".join(ALL_COMMANDS))
    assert inline.returncode == 0, inline.stdout
    assert run(*shellcheck, "-", input="rm -r $FOLDER/*").returncode == 1


def test_no_expression_stands_in_a_shell_step() -> None:
    """What an expression holds may be anybody's words; a variable of the environment cannot become code."""
    assert [command for command in ALL_COMMANDS if "${{" in command] == []


# ---- the commands themselves


def tool(folder: Path, name: str, script: str) -> None:
    """Put a program of this name, a shell script, first in the path of `shell`."""
    (folder / "bin").mkdir(exist_ok=True)
    path = folder / "bin" / name
    path.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def shell(folder: Path, command: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does, with the tools of `folder` before others."""
    environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"} | variables
    return run("bash", "-e", "-c", command, cwd=cwd or ROOT, env=environment)


def only(commands: list[str], word: str) -> str:
    (command,) = [each for each in commands if word in each]
    return command


def test_every_command_is_run_by_a_test_here() -> None:
    """Or, for `.ci/run` and what `make` does, by every run of the tests."""
    assert sorted(command.split()[0] for command in ALL_COMMANDS) == sorted(
        [
            ".ci/run",
            "make",
            "make",
            ".venv/bin/python",
            "sudo",
            "docker",
            "docker",
            "make",
            "make",
            "pipx",
            ".github/report",
        ]
    )


@pytest.mark.parametrize("command", [each for each in ALL_COMMANDS if each.startswith("make ")])
def test_make_knows_what_it_is_told(command: str) -> None:
    assert run(*command.split(), "--dry-run", cwd=ROOT).returncode == 0
    assert run(*f"{command}s-not".split(), "--dry-run", cwd=ROOT).returncode != 0


def test_publish_stops_if_a_notebook_is_faulty_or_a_file_is_not_committed(tmp_path: Path) -> None:
    command = only(commands("publish", "build"), "git status")
    clone = tmp_path / "clone"
    python = clone / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/bash\n[ "$*" = "-m pytest tests/test_notebooks.py" ] && exit "$FOUND"\n')
    python.chmod(0o755)
    (clone / ".gitignore").write_text(".venv/\n")
    git = ("git", "-c", "user.name=Reader", "-c", "user.email=reader@example.org")
    for arguments in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "Start")):
        assert run(*git, *arguments, cwd=clone).returncode == 0
    assert shell(tmp_path, command, clone, FOUND="0").returncode == 0
    assert shell(tmp_path, command, clone, FOUND="1").returncode == 1
    (clone / "chapter.ipynb").touch()
    stopped = shell(tmp_path, command, clone, FOUND="0")
    assert stopped.returncode == 1
    assert "chapter.ipynb" in stopped.stdout


def report(tmp_path: Path, open_issue: str, **results: str) -> tuple[int, list[str]]:
    """The report's exit status and the calls of `gh`, where a search finds the number `open_issue`."""
    log = tmp_path / "log"
    log.write_text("")
    tool(tmp_path, "gh", 'printf "%s|" "$@" >> "$LOG"; echo >> "$LOG"; [ "$2" != list ] || echo "$OPEN"')
    where = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "ada/book", "GITHUB_RUN_ID": "7"}
    needs = json.dumps({job: {"result": result, "outputs": {}} for job, result in results.items()})
    command = only(commands("weekly", "report"), "report")
    done = shell(tmp_path, command, RESULTS=needs, LOG=str(log), OPEN=open_issue, **where)
    return done.returncode, log.read_text().splitlines()


def test_the_report_opens_an_issue_for_each_job_that_failed_or_adds_to_the_open_one(tmp_path: Path) -> None:
    page = "See https://github.com/ada/book/actions/runs/7"
    status, calls = report(tmp_path, "", colab="success", links="failure", audit="cancelled")
    assert status == 0
    assert [call for call in calls if "|create|" in call] == [
        f"issue|create|--title|The weekly run fails: {job}|--body|{page}|" for job in ("links", "audit")
    ]
    assert not any("|comment|" in call for call in calls)
    status, calls = report(tmp_path, "12", links="failure")
    assert status == 0
    assert calls[1:] == [f"issue|comment|12|--body|{page}|"]
    assert 'in:title "The weekly run fails: links"' in calls[0]
    assert report(tmp_path, "", colab="success", links="success") == (0, [])


def test_the_report_fails_where_it_cannot_report(tmp_path: Path) -> None:
    command = only(commands("weekly", "report"), "report")
    where = {"GITHUB_SERVER_URL": "", "GITHUB_REPOSITORY": "", "GITHUB_RUN_ID": ""}
    assert shell(tmp_path, command, RESULTS="no JSON", **where).returncode != 0
    tool(tmp_path, "gh", "exit 4")
    failed = json.dumps({"links": {"result": "failure"}})
    assert shell(tmp_path, command, RESULTS=failed, **where).returncode == 4


def test_the_report_waits_for_every_other_weekly_job_however_it_ends() -> None:
    jobs = workflow("weekly")["jobs"]
    assert {*jobs["report"]["needs"], "report"} == jobs.keys()
    assert jobs["report"]["if"] == "${{ !cancelled() }}"


def test_colabs_image_is_pulled_and_runs_the_notebooks_of_this_tree(tmp_path: Path) -> None:
    """With a stand-in for docker that runs here what it is to run there, but asks only for help."""
    tool(tmp_path, "docker", f'if [ "$1" = run ]; then shift 8; exec {sys.executable} "${{@:2}}" --help; fi; echo "$@"')
    pull, start = [each for each in commands("weekly", "colab") if each.startswith("docker")]
    image = workflow("weekly")["jobs"]["colab"]["env"]["IMAGE"]
    assert shell(tmp_path, pull, IMAGE=image).stdout == f"pull {image}\n"
    started = shell(tmp_path, start, IMAGE=image)
    assert started.returncode == 0, started.stderr
    assert "Run notebooks as Colab runs them" in started.stdout
    assert shell(tmp_path, start.replace("tools.colab", "tools.collab"), IMAGE=image).returncode != 0


def test_a_notebook_that_fails_or_dies_is_named_and_the_others_are_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = {"a.ipynb": None, "b.ipynb": DeadKernelError("its kernel died"), "c.ipynb": None}
    ran = []

    def run(path: Path, *_: object, in_colab: bool) -> None:
        ran.append((path.name, in_colab))
        if error := ends[path.name]:
            raise error

    monkeypatch.setattr(colab.files, "notebooks", lambda: [Path(name) for name in ends])
    monkeypatch.setattr(colab, "run", run)
    monkeypatch.setattr("sys.argv", ["colab", "--elsewhere"])
    assert colab.main() == 1
    assert ran == [(name, False) for name in ends]
    assert "b.ipynb\nits kernel died\npassed" in capsys.readouterr().out
    del ends["b.ipynb"]
    monkeypatch.setattr("sys.argv", ["colab"])
    assert colab.main() == 0
    assert ran[-1] == ("c.ipynb", True)


def test_room_is_made_outside_the_checkout() -> None:
    words = only(commands("weekly", "colab"), "sudo").split()
    assert words[:3] == ["sudo", "rm", "-rf"]
    assert all(re.fullmatch(r"/(usr|opt)/[\w./]+", word) for word in words[3:])


def test_the_audit_asks_about_exact_versions_of_everything_that_is_pinned(tmp_path: Path) -> None:
    tool(tmp_path, "pipx", 'printf "%s\\n" "$@"')
    words = shell(tmp_path, only(commands("weekly", "audit"), "pip-audit")).stdout.splitlines()
    assert words[:5] == ["run", "pip-audit", "--strict", "--no-deps", "--disable-pip"]
    named = [name for option, name in zip(words[5::2], words[6::2], strict=True) if option == "--requirement"]
    assert named == ["requirements.txt", "requirements-alone.txt"]
    pins = [line for name in named for line in lines(name)]
    assert [line for line in pins if not re.fullmatch(r"[a-z0-9-]+==[\w.]+", line)] == []
    assert {"torch", "timm"} <= {line.partition("==")[0] for line in pins}


# ---- versions


def lines(name: str) -> list[str]:
    """A file of requirements without its remarks."""
    return [line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def test_the_oldest_versions_are_the_lower_bounds_and_the_tools_are_those_of_the_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [each for extra in project["optional-dependencies"].values() for each in extra]
    bounds = {each.replace(">=", "==") for each in [*project["dependencies"], *extras] if ">=" in each}
    assert len(bounds) == 5
    assert not any(mark in each for each in bounds for mark in "<,~!")
    oldest, locked = set(lines("requirements-oldest.txt")), set(lines("requirements.txt"))
    assert bounds <= oldest
    assert bounds.isdisjoint(locked), "the lock is to be newer"
    of_their_time = {"ipykernel", "pyparsing"}
    assert {each for each in oldest - bounds - locked if each.partition("==")[0] not in of_their_time} == set()


def test_the_workflow_tests_every_python_and_the_oldest_versions_on_the_oldest_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    jobs = workflow("test")["jobs"]
    pythons = jobs["test"]["strategy"]["matrix"]["python"]
    assert pythons == ["3.11", "3.12", "3.13"]
    assert project["requires-python"] == f">={pythons[0]}"
    (set_up,) = [step for step in jobs["oldest"]["steps"] if step.get("uses", "").startswith("actions/setup-python")]
    assert set_up["with"]["python-version"] == pythons[0]
    assert commands("test") == [".ci/run", "make oldest"]
