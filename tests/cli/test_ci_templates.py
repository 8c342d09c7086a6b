"""The templates of docs/ci, and the hook of pre-commit, acted out in a fresh repository with a network of its own.

Their shell steps run as written, in an environment without onnx and socsched, which they install; the source is a copy
of this checkout, and what they get from a package index is in a folder of wheels made from what is installed here.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow
HIDDEN = ("onnx", "socsched")
SHIPPED = ("socsched", "socsched_ros", "platforms", "pipelines", "studies", "schemas", "docs/ci", "requirements")
FILES = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", ".pre-commit-hooks.yaml")


def wheel(name: str, folder: Path) -> Path:
    """Return the wheel of an installed distribution, put together again."""
    found = metadata.distribution(name)
    tag = re.findall(r"^Tag: (\S+)", found.read_text("WHEEL") or "", re.M)[0]
    stem = re.sub(r"[-_.]+", "_", found.metadata["Name"]).lower()
    file = folder / f"{stem}-{found.version}-{tag}.whl"
    record = []
    with zipfile.ZipFile(file, "w") as archive:
        for path in found.files or []:
            text = path.as_posix()
            if text.startswith("..") or text.endswith(("RECORD", ".pyc", "INSTALLER", "REQUESTED")):
                continue
            data = Path(str(path.locate())).read_bytes()
            archive.writestr(text, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{text},sha256={digest},{len(data)}")
        info = next(line.split("/")[0] for line in record if ".dist-info/" in line)
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,"]) + "\n")
    return file


def needed(name: str, names: dict[str, None]) -> None:
    """Add a distribution, and those that it requires here, to `names`."""
    if name not in names:
        names[name] = None
        for line in metadata.requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed(requirement.name, names)


@dataclass
class Machine:
    """A machine that runs jobs: its programs, its wheels, a checkout of socsched, and a repository with a guard."""

    folder: Path
    source: Path
    repository: Path
    environment: dict[str, str]

    def sh(self, script: str, place: Path, **variables: str) -> int:
        """Run a script as CI systems do, and return its exit code."""
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(command, cwd=place, env={**self.environment, **variables}, check=False).returncode

    def clone(self, name: str) -> Path:
        """Return a fresh clone of the repository, with the checkout of socsched as a submodule would be."""
        place = self.folder / name
        subprocess.run(["git", "clone", "-q", self.repository, place], check=True)
        (place / "socsched").symlink_to(self.source)
        return place

    def python(self, folder: Path) -> str:
        """Make an environment that has what this one has but onnx and socsched; return the PATH that puts it first."""
        venv.create(folder, with_pip=True, symlinks=True)
        shutil.copy(self.folder / "rest.pth", site(folder))
        return f"{folder / 'bin'}{os.pathsep}{self.environment['PATH']}"


def site(environment: Path) -> Path:
    """Return the folder of an environment's packages."""
    return next((environment / "lib").glob("python*")) / "site-packages"


@pytest.fixture(scope="module")
def machine(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    from tools.verify import gate_commits

    folder = tmp_path_factory.mktemp("machine")
    source, rest, wheels, tools = (folder / name for name in ("source", "rest", "wheels", "tools"))
    for name in SHIPPED:
        shutil.copytree(checkout / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(checkout / name, source)
    rest.mkdir()
    import numpy

    for path in Path(numpy.__file__).parents[1].iterdir():
        if not path.name.lower().startswith(HIDDEN) and path.suffix != ".pth":
            (rest / path.name).symlink_to(path)
    (folder / "rest.pth").write_text(f"{rest}\n")
    wheels.mkdir()
    names: dict[str, None] = {}
    for name in ("onnx", "hatchling"):
        needed(name, names)
    for name in names:
        wheel(name, wheels)
    tools.mkdir()
    # the python3 of an agent; what `-m venv FOLDER` makes has all that this environment has but what is hidden
    (tools / "python3").write_text(
        f'#!/bin/sh\n"{sys.executable}" "$@" || exit\n'
        f'case "$*" in "-m venv "*) cp "{folder}/rest.pth" "$3"/lib/python*/site-packages/ ;; esac\n'
    )
    (tools / "python3").chmod(0o755)
    repository = folder / "repository"
    repository.mkdir()
    gate_commits.start(repository)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "SOCSCHED_"))}
    environment = kept | {
        "PATH": f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1", "HOME": str(folder), "SOCSCHED_CACHE": os.environ["SOCSCHED_CACHE"],
    }  # fmt: skip
    return Machine(folder, source, repository, environment)


INPUTS = {
    "PIPELINE": "my-stack",
    "SOCSCHED_PLATFORM": "my-board",
    "SOCSCHED_MODE": "MAXN",
    "SOCSCHED_SOURCE": "./socsched",
}


def accepted(out: Path) -> None:
    """Assert that a guard found the plan feasible and nothing worse: no input differs, not even socsched itself."""
    summary = (out / "summary.md").read_text(encoding="utf-8")
    assert "**feasible**" in summary and "no regression" in summary
    assert not re.search("input .* changed|itself has changed|made by", summary)
    root = ElementTree.fromstring((out / "junit.xml").read_text(encoding="utf-8").split("\n", 1)[1])
    assert not [*root.iter("failure"), *root.iter("error")] and len([*root.iter("testcase")]) > 10


def planned_without_profile(machine: Machine, place: Path) -> None:
    """Make the baseline of a clone anew: the templates plan without the profile that the repository has."""
    from tools.verify.gate_commits import BOARD, PIPELINE, socsched

    line = ("plan", PIPELINE, "-p", BOARD, "--mode", "MAXN", "-o", "baseline/plan.json")
    assert socsched(place, *line, code=machine.source) == 0


def test_github(machine: Machine) -> None:
    place = machine.clone("github")
    planned_without_profile(machine, place)
    job = yaml.safe_load((machine.source / "docs/ci/github-actions.yml").read_text())["jobs"]["deployment"]
    path, summary = machine.python(machine.folder / "github-python"), machine.folder / "step-summary"
    for step in (step for step in job["steps"] if "run" in step):
        variables = {**job["env"], **INPUTS, "PATH": path, "GITHUB_STEP_SUMMARY": str(summary)}
        assert machine.sh(step["run"], place, **variables) == 0, step
    accepted(place / "out")
    assert summary.read_text() == (place / "out" / "summary.md").read_text()


def test_the_composite_action(machine: Machine) -> None:
    place = machine.clone("action")
    planned_without_profile(machine, place)
    action = yaml.safe_load((machine.source / "docs/ci/guard/action.yml").read_text())
    given = {name: entry.get("default") for name, entry in action["inputs"].items()}
    given |= {"socsched": "./socsched", "pipeline": "my-stack", "platform": "my-board", "mode": "MAXN"}
    path = machine.python(machine.folder / "action-python")
    steps = [step for step in action["runs"]["steps"] if "run" in step]
    assert not any("${{" in step["run"] for step in steps), "an input's text would be run by the shell"
    assert set(re.findall(r"\${{ inputs\.([a-z-]+) }}", str(steps))) == set(given)
    for step in steps:
        filled = {
            name: re.sub(r"\${{ inputs\.([a-z-]+) }}", lambda found: str(given[found[1]]), value)
            for name, value in step["env"].items()
        }
        variables = {**filled, "PATH": path, "GITHUB_STEP_SUMMARY": str(machine.folder / "action-summary")}
        assert machine.sh(step["run"], place, **variables) == 0, step
    accepted(place / given["output"])


def test_gitlab(machine: Machine) -> None:
    place = machine.clone("gitlab")
    planned_without_profile(machine, place)
    template = yaml.safe_load((machine.source / "docs/ci/gitlab-ci.yml").read_text())
    path = machine.python(machine.folder / "gitlab-python")
    for line in template["deployment"]["script"]:
        assert machine.sh(line, place, **{**template["variables"], **INPUTS, "PATH": path}) == 0, line
    accepted(place / "out")


def test_jenkins(machine: Machine) -> None:
    place = machine.clone("jenkins")
    planned_without_profile(machine, place)
    text = (machine.source / "docs/ci/Jenkinsfile").read_text()
    lines = re.findall(r"\bsh '(.*)'", text)
    assert len(lines) == text.count("steps {") == 2
    for line in lines:
        assert machine.sh(line, place, **INPUTS) == 0, line
    accepted(place / "out")


def test_the_image(machine: Machine) -> None:
    """Its COPY and RUN lines in a folder instead of an image; what installs packages of Debian is left out."""
    image, text = machine.folder / "image", (machine.source / "docs/ci/Dockerfile").read_text()
    ignored = (machine.source / "docs/ci/Dockerfile.dockerignore").read_text().split()
    image.mkdir()
    variables = {"PATH": machine.python(machine.folder / "image-python"), "PIP_NO_BUILD_ISOLATION": "0"}
    onnx = next((machine.folder / "wheels").glob("onnx-*.whl"))
    lines = re.sub(r"#.*\n", "", text).replace("\\\n", " ").splitlines()
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "COPY":
            *names, target = rest.split()
            for name in names:
                assert f"!{name.split('/')[0]}" in ignored, f"{name} is not in the context"
                found, place = machine.source / name, image / target
                place = place / found.name if target.endswith("/") else place
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copytree(found, place) if found.is_dir() else shutil.copy(found, place)
            lock = image / "requirements" / "onnx.lock"
            if lock.exists() and "put together" not in lock.read_text():
                digest = hashlib.sha256(onnx.read_bytes()).hexdigest()
                lines_of = [f"# put together here: {onnx.name}", lock.read_text()]
                changed = re.sub(
                    r"^(onnx==\S+) \\\n", rf"\1 --hash=sha256:{digest} \\\n", "\n".join(lines_of), flags=re.M
                )
                lock.write_text(changed)
        elif word == "RUN" and "apt-get" not in rest:
            assert machine.sh(rest, image, **variables) == 0, rest
    assert "ENTRYPOINT" in text and lines[-1] == 'ENTRYPOINT ["socsched"]'
    place = machine.clone("container")
    (place / "socsched").unlink()
    planned_without_profile(machine, place)
    guard = "socsched guard my-stack -p my-board --mode MAXN --baseline baseline/plan.json -o out"
    assert machine.sh(guard, place, **variables) == 0
    accepted(place / "out")


def test_the_hook_of_pre_commit_lints_networks(machine: Machine) -> None:
    """As pre-commit does: the hook's repository and its dependencies in an environment, the files as arguments."""
    (hook,) = yaml.safe_load((machine.source / ".pre-commit-hooks.yaml").read_text())
    (used,) = yaml.safe_load((machine.source / "docs/ci/pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert hook["language"] == "python" and used["id"] == hook["id"]
    arguments = " ".join(used["args"]).replace("jetson-agx-orin-64gb", "my-board")
    path = machine.python(machine.folder / "hook-python")
    listed = " ".join(f"'{one}'" for one in hook["additional_dependencies"])
    assert machine.sh(f"pip install . {listed}", machine.source, PATH=path) == 0
    place = machine.clone("hook")
    files = subprocess.run(["git", "ls-files"], cwd=place, capture_output=True, text=True, check=True).stdout.split()
    matched = [name for name in files if re.search(hook["files"], name)]
    assert {"networks/det.onnx", "pipelines/my-stack.yaml", "baseline/plan.json"} <= set(matched)
    assert machine.sh(f"{hook['entry']} {arguments} {' '.join(matched)}", place, PATH=path) == 0
