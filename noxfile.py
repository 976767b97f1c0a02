"""Every check of the project, one session each: `nox -l` lists them.

Sessions need Python and pip only. Each keeps its environment under `.nox/` and uses it again; `wheel` and `template`
install what they built into a fresh one, as a stranger would.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "layers", "tests", "conformance"]

ROOT = Path(__file__).parent
BUILD = ROOT / "build"
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
SOURCES = ("core", "backends", "conformance", "benchmarks")
EMBEDDED_BACKENDS = ("memory", "file", "sqlite")

# The services that `statebook conformance` starts by itself, with the extra that brings the driver.
SERVICES = {
    "redis": "redis",
    "redis-sentinel": "redis",
    "redis-cluster": "redis",
    "mysql": "mysql",
    "s3": "s3",
    "moto": "s3",
}

PROGRESS_S = 20

# With `--jobs`, in this order: the last to start should be one that ends soon.
LONGEST_FIRST = ("s3", "moto", "redis-cluster", "redis-sentinel", "mysql", "redis", "file", "sqlite", "memory")

# What shows whether the oldest drivers do: core, and the tests of the calls to drivers on real servers. Left out are
# those that wait for servers to fail over, to be killed and to come back.
OLDEST_TESTS = (
    "tests/unit/core",
    *(f"tests/backends/redis/test_redis_{name}.py" for name in ("journal", "layout", "open", "options", "replies")),
    *(f"tests/backends/mysql/test_mysql_{name}.py" for name in ("event_table", "faults", "opening", "packets", "tls")),
    *(f"tests/backends/s3/test_s3_{name}.py" for name in ("blobs", "connections", "http", "listing", "probe")),
    *(f"tests/backends/s3/test_s3_{name}.py" for name in ("settling", "sigv4", "tls")),
)
OLDEST_BACKENDS = ("memory", "sqlite", "redis", "mysql", "s3")

# The example of a plugin by someone else, and the contract rule at which its broken variant must be refused.
# The broken variant is a `module:function` target beside the tests of the example.
TEMPLATE = ROOT / "examples" / "backend_template"
TEMPLATE_URL = "shelf://{directory}"
TEMPLATE_BROKEN = "broken_variant:open_store"
TEMPLATE_BROKEN_RULE = "ATOM-1"


@dataclass(frozen=True)
class Certified:
    """What one certification came to: a row of the closing table."""

    backend: str
    passed: bool
    level: str
    seconds: float
    certificate: Path


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests; arguments go to pytest."""
    install_project(session, "all", groups=("test", "services"))
    session.run(
        "pytest",
        *(session.posargs or ("-n", "auto", "--dist", "worksteal", "--durations", "25")),
        env=child_environment(),
    )


@nox.session
def conformance(session: nox.Session) -> None:
    """Certify the embedded backends, or each `--backend NAME`; other arguments go to `statebook conformance`.

    `--backend all` stands for the embedded ones and all services. With `--jobs N` so many are certified at a time, and
    what each has said is shown when it has ended.
    """
    parser = argparse.ArgumentParser(prog="nox -s conformance --", allow_abbrev=False)
    parser.add_argument("--backend", action="append", metavar="NAME", help="a URL scheme; repeat for several")
    parser.add_argument("--out", type=Path, default=BUILD / "certificates", help="where certificates go")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="certify so many backends at a time")
    wanted, passed_on = parser.parse_known_args(session.posargs)
    chosen = wanted.backend or EMBEDDED_BACKENDS
    backends = tuple(dict.fromkeys((*EMBEDDED_BACKENDS, *SERVICES) if "all" in chosen else chosen))

    drivers = {SERVICES.get(name, name) for name in backends} & extras()
    servers = ("services",) if any(name in SERVICES for name in backends) else ()
    install_project(session, "conformance", *sorted(drivers), groups=servers)
    out = wanted.out.resolve()
    if wanted.jobs > 1:
        results = certify_side_by_side(session, backends, out, passed_on, wanted.jobs)
    else:
        results = []
        for position, backend in enumerate(backends, start=1):
            session.log(f"[{position}/{len(backends)}] certifying {backend}")
            results.append(certify(session, backend, out / backend, passed_on))

    report_certified(session, results)


@nox.session(venv_backend="uv", reuse_venv=False)
def oldest(session: nox.Session) -> None:
    """Test and certify at level 1 with the oldest packages that pyproject.toml allows; arguments go to pytest.

    The environment is a fresh one: in one that is used again, a bound that went down would change nothing.
    """
    drivers = ("mysql", "redis", "s3")
    lowest = ("--resolution", "lowest-direct")
    install_project(session, "conformance", *drivers, groups=("test", "services"), options=lowest)
    session.run("uv", "pip", "list", "--quiet", "--format", "freeze", "--exclude-editable", external=True)
    session.run("pytest", "-q", *(session.posargs or OLDEST_TESTS), env=child_environment())
    report_certified(session, certify_side_by_side(session, OLDEST_BACKENDS, BUILD / "oldest", ["--level", "1"], 2))


@nox.session
def self_check(session: nox.Session) -> None:
    """Show that each rule can fail: the kill matrix of all known-bad backends; some need real servers."""
    install_project(session, "conformance", "mysql", "redis", groups=("services",))
    session.run("statebook", "conformance", "self-check", *session.posargs, env=child_environment())


@nox.session
def bench(session: nox.Session) -> None:
    """Run the benchmarks; `-- --quick` runs every workload for a moment on the embedded backends: valid, not fast.

    Other arguments go to `statebook bench`: `nox -s bench -- run sqlite:///x.db --slo p99=20ms`.
    """
    quick = session.posargs in ([], ["--quick"])
    install_project(session, "bench", *(() if quick else ("conformance", "mysql", "redis", "s3")))
    if not quick:
        session.run("statebook", "bench", *session.posargs, env=child_environment())
        return
    out = BUILD / "bench"
    shutil.rmtree(out, ignore_errors=True)
    with temporary_directory() as directory:
        urls = [target_of(session, backend, directory)[1] for backend in EMBEDDED_BACKENDS]
        session.run("statebook", "bench", "quick", *urls, "--out", str(out), env=child_environment())


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format and sizes; `-- --fix` corrects what can be corrected."""
    session.install(*group("lint"))
    fix = "--fix" in session.posargs
    session.run("ruff", "check", *(("--fix",) if fix else ()), ".")
    session.run("ruff", "format", *(() if fix else ("--check",)), ".")
    session.run("python", ".ci/check_style.py", *SOURCES, "tests", "examples")


@nox.session
def types(session: nox.Session) -> None:
    """Check types: mypy strict, then pyright."""
    install_project(session, "all", groups=("types",))
    typing_tests = ("tests/typing",) if (ROOT / "tests" / "typing").is_dir() else ()
    session.run("mypy", *(f"{source}/{package}" for source, package in packages().items()), *typing_tests)
    session.run("pyright")


@nox.session
def layers(session: nox.Session) -> None:
    """Check that imports run one way."""
    install_project(session, groups=("layers",))
    session.run("lint-imports", "--no-logo", "--cache-dir", str(Path(session.cache_dir) / "import_linter"))


@nox.session
def wheel(session: nox.Session) -> None:
    """Build wheel and sdist, install the wheel alone in a fresh environment and look at it from there."""
    session.install(*group("wheel"))
    with temporary_directory() as scratch:
        built = build_distribution(session, ROOT, scratch / "dist")
        python = fresh_environment(session, scratch / "env", str(built))
        with session.chdir(scratch):
            session.run(python, "-I", str(ROOT / ".ci" / "check_wheel.py"), str(ROOT), str(built.parent), external=True)
            session.run(str(Path(python).with_name("statebook")), "--help", external=True, silent=True)


@nox.session
def template(session: nox.Session) -> None:
    """Build the example plugin out of the tree, certify it as its author would, and see its broken variant refused."""
    session.install(*group("wheel"))
    with temporary_directory() as scratch:
        copy = scratch / "plugin"
        shutil.copytree(TEMPLATE, copy, ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
        statebook = build_distribution(session, ROOT, scratch / "dist")
        plugin = build_distribution(session, copy, scratch / "plugin-dist")
        python = fresh_environment(session, scratch / "env", f"{statebook}[conformance]", str(plugin))
        command = (str(Path(python).with_name("statebook")), "conformance")
        url = TEMPLATE_URL.format(directory=scratch / "store")
        with session.chdir(copy):
            session.run(python, "-m", "pytest", "-ra", external=True, env=child_environment())
            session.run(*command, url, "--out", str(scratch / "good"), external=True, env=child_environment())
            expect_refusal(session, (*command, TEMPLATE_BROKEN, "--out", str(scratch / "broken")), copy / "tests")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the pages into build/site; a broken link is an error."""
    session.install(*group("docs"))
    pages = BUILD / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT, pages, ignore=not_documentation)
    session.run("mkdocs", "build", "--strict", "--site-dir", str(BUILD / "site"))
    session.log("open build/site/index.html")


def group(name: str) -> tuple[str, ...]:
    """Return the requirements of one dependency group."""
    return nox.project.dependency_groups(PYPROJECT, name)


def extras() -> frozenset[str]:
    """Return the names of the optional dependencies."""
    return frozenset(PYPROJECT["project"]["optional-dependencies"])


def packages() -> dict[str, str]:
    """Return each source root with the package in it."""
    listed = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return dict(path.split("/") for path in listed)


def install_project(
    session: nox.Session, *wanted_extras: str, groups: tuple[str, ...] = (), options: tuple[str, ...] = ()
) -> None:
    """Install the tree itself, editable, with extras and dependency groups; options go to the installer."""
    project = f".[{','.join(wanted_extras)}]" if wanted_extras else "."
    session.install(*options, "-e", project, *(requirement for name in groups for requirement in group(name)))


def child_environment() -> dict[str, str]:
    """Return what every child needs to show its progress while it runs."""
    return {"PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def temporary_directory() -> Iterator[Path]:
    """Give a directory of this run alone; links in its path are resolved, for backends that refuse them."""
    with tempfile.TemporaryDirectory(prefix="statebook-") as name:
        yield Path(name).resolve()


def certify(session: nox.Session, backend: str, out: Path, passed_on: list[str], log: Path | None = None) -> Certified:
    """Certify one backend in a directory of its own; its URL may hold a password and is not logged."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    started = time.monotonic()
    with temporary_directory() as directory, contextlib.ExitStack() as stack:
        shown, url = target_of(session, backend, directory)
        session.log(" ".join(("statebook", "conformance", shown, "--out", os.path.relpath(out), *passed_on)))
        command = (str(Path(session.bin) / "statebook"), "conformance", url, "--out", str(out), *passed_on)
        environment = {**os.environ, **child_environment()}
        environment["PATH"] = os.pathsep.join((str(session.bin), environment.get("PATH", "")))
        said = None if log is None else stack.enter_context(log.open("wb"))
        finished = subprocess.run(command, env=environment, stdout=said, stderr=said, check=False)
    certificate = out / "certificate.json"
    return Certified(backend, finished.returncode == 0, level_of(certificate), time.monotonic() - started, certificate)


def certify_side_by_side(
    session: nox.Session, backends: tuple[str, ...], out: Path, passed_on: list[str], jobs: int
) -> list[Certified]:
    """Certify several backends at a time, those that take longest first; show what each has said at its end."""
    results: dict[str, Certified] = {}
    with temporary_directory() as logs, ThreadPoolExecutor(max_workers=jobs) as pool:
        longest_first = sorted(backends, key=lambda name: LONGEST_FIRST.index(name) if name in LONGEST_FIRST else 99)
        started = {
            pool.submit(certify, session, name, out / name, passed_on, logs / name): name for name in longest_first
        }
        while len(results) < len(started):
            done, _ = wait([each for each in started if started[each] not in results], PROGRESS_S, FIRST_COMPLETED)
            for each in done:
                result = results[started[each]] = each.result()
                verdict = "passed" if result.passed else "FAILED"
                session.log(f"[{len(results)}/{len(backends)}] {result.backend} {verdict} after {result.seconds:.0f} s")
                print(text_of(logs / result.backend), flush=True)  # noqa: T201
            running = [name for each, name in started.items() if each.running()]
            said = (text_of(logs / name).strip().rpartition("\n")[2] for name in running)
            if running:
                session.log("; ".join(line for line in said if line) or "at work")
    return [results[name] for name in backends]


def text_of(log: Path) -> str:
    """Return what a log has so far, empty where it is not there yet."""
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""


def target_of(session: nox.Session, backend: str, directory: Path) -> tuple[str, str]:
    """Return where to certify a backend, as shown and as used: its variable, or a fresh place if it is embedded."""
    variable = f"STATEBOOK_TEST_{backend.upper().replace('-', '_').replace('+', '_')}_URL"
    if backend in SERVICES:
        return backend, backend
    if variable in os.environ:
        return f'"${variable}"', os.environ[variable]
    fresh = {
        "memory": f"memory://{directory.name}",
        "file": f"file://{directory}/store",
        "sqlite": f"sqlite:///{directory}/store.db",
    }
    if backend not in fresh:
        session.error(f"{backend!r} is none of ours: set {variable} to a URL that may be written to")
    return fresh[backend], fresh[backend]


def level_of(certificate: Path) -> str:
    """Return the level that a certificate grants, `none` if there is no certificate or no level."""
    if not certificate.is_file():
        return "none"
    granted = json.loads(certificate.read_text(encoding="utf-8"))["level"]["granted"]
    return "none" if granted is None else str(granted)


def report_certified(session: nox.Session, results: list[Certified]) -> None:
    """Print the closing table; fail where a backend has."""
    lines = [f"{'backend':<16} {'result':<8} {'level':<6} {'seconds':>8}  certificate"]
    for result in results:
        verdict = "passed" if result.passed else "FAILED"
        path = os.path.relpath(result.certificate) if result.certificate.is_file() else "none"
        lines.append(f"{result.backend:<16} {verdict:<8} {result.level:<6} {result.seconds:>8.1f}  {path}")
    rule = "-" * max(map(len, lines))
    print("\n".join(("", lines[0], rule, *lines[1:], "")), flush=True)  # noqa: T201
    failed = [result.backend for result in results if not result.passed]
    if failed:
        session.error(f"not certified: {', '.join(failed)}")


def build_distribution(session: nox.Session, project: Path, dist: Path) -> Path:
    """Build the sdist and, from it, the wheel; return the wheel."""
    session.run("python", "-m", "build", "--outdir", str(dist), str(project), silent=True)
    (built,) = dist.glob("*.whl")
    return built


def fresh_environment(session: nox.Session, directory: Path, *requirements: str) -> str:
    """Make an environment that never saw this tree, install into it, and return its Python."""
    session.run("python", "-m", "venv", str(directory))
    python = str(directory / "bin" / "python")
    session.run(python, "-m", "pip", "install", "--quiet", *requirements, external=True)
    return python


def expect_refusal(session: nox.Session, command: tuple[str, ...], module_path: Path) -> None:
    """Run a certification that must fail, and fail unless it does so at the right rule."""
    refusals = tuple(range(1, 126))
    output = session.run(
        *command,
        external=True,
        silent=True,
        success_codes=refusals,
        env={**child_environment(), "PYTHONPATH": str(module_path)},
    )
    rule = re.escape(TEMPLATE_BROKEN_RULE)
    line = re.search(rf"^.*(\bFAIL\b.*\b{rule}|\b{rule}\b.*\bFAIL)\b.*$", str(output), re.MULTILINE)
    if line is None:
        session.error(f"the broken variant was not refused at {TEMPLATE_BROKEN_RULE}:\n{output}")
    session.log(f"the broken variant was refused: {line.group().strip()}")


def not_documentation(directory: str, names: list[str]) -> set[str]:
    """Leave out of the pages what is no part of the repository."""
    left_out = {"__pycache__", "build", "dist", "site", "venv"} if Path(directory) == ROOT else {"__pycache__"}
    return {name for name in names if name in left_out or name.startswith(".")}
