"""Look at an installed statebook as a user without extras does. Usage: check_wheel.py REPOSITORY DIST.

Run by the Python of a fresh environment into which nothing but the wheel was installed.
"""

import importlib
import importlib.util
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

PACKAGES = ("statebook", "statebook_backends", "statebook_conformance", "statebook_benchmarks")
DRIVERS = ("redis", "pymysql", "boto3", "s3fs")
NOT_SHIPPED = {".pyc"}


def main(repository: Path, dist: Path) -> None:
    """Check the archives, then what is installed."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    check_archives(repository, dist, project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    check_packages()
    check_entry_points(project["project"]["entry-points"]["statebook.backends"])


def check_archives(repository: Path, dist: Path, sources: list[str]) -> None:
    """Check that both archives hold each file of the four packages, and the wheel nothing else."""
    (wheel,) = dist.glob("*.whl")
    (sdist,) = dist.glob("*.tar.gz")
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}

    data_files = 0
    for source in sources:
        root = (repository / source).parent
        for file in (repository / source).rglob("*"):
            if not file.is_file() or file.suffix in NOT_SHIPPED:
                continue
            path = str(file.relative_to(repository))
            require(str(file.relative_to(root)) in in_wheel, f"{path} is not in the wheel")
            require(path in in_sdist, f"{path} is not in the sdist")
            data_files += file.suffix in {".sql", ".lua", ".json"}

    strangers = {name.partition("/")[0] for name in in_wheel} - set(PACKAGES)
    require(all(name.endswith(".dist-info") for name in strangers), f"the wheel also holds {sorted(strangers)}")
    require(any(name.endswith(".dist-info/licenses/LICENSE") for name in in_wheel), "the wheel holds no LICENSE")
    print(f"archives: complete, {data_files} data files")


def check_packages() -> None:
    """Check that the four packages import from this environment and are typed."""
    for name in PACKAGES:
        module = importlib.import_module(name)
        require(module.__file__ is not None, f"{name} is no regular package")
        home = Path(str(module.__file__)).parent
        require(home.is_relative_to(sys.prefix), f"{name} comes from {home}, not from the wheel")
        require((home / "py.typed").is_file(), f"{name} has no py.typed")
    print(f"packages: {', '.join(PACKAGES)}")


def check_entry_points(declared: dict[str, str]) -> None:
    """Check that each backend is listed, and that its plugin loads where no driver is installed."""
    found = {point.name: point for point in entry_points(group="statebook.backends")}
    require(set(found) == set(declared), f"declared {sorted(declared)}, found {sorted(found)}")
    present = [driver for driver in DRIVERS if importlib.util.find_spec(driver) is not None]
    require(not present, f"this environment holds drivers already: {present}")
    require(not any(name.startswith("statebook_backends.") for name in sys.modules), "listing imported a backend")
    for point in found.values():
        point.load()
    print(f"backends: {', '.join(sorted(found))}")


def require(holds: bool, finding: str) -> None:  # noqa: FBT001
    """Stop with the finding unless it holds."""
    if not holds:
        sys.exit(f"check_wheel: {finding}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
