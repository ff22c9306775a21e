"""The map of the code is the code: every link leads somewhere, and the crates keep to the order that they state."""

import json
import re
import subprocess

import pytest
from fullbore import REPOSITORY

MOST_LINES = 20_000
MAP = (REPOSITORY / "ARCHITECTURE.md").read_text()
CRATES = REPOSITORY / "crates"
# The module of Python lies beside the files of its package.
OUTSIDE = {"python": REPOSITORY / "python"}
# The workspace lists its crates in their order.
ORDER = re.findall(r'^ +"(?:crates/)?(\w+)",$', (REPOSITORY / "Cargo.toml").read_text(), re.MULTILINE)
# A row of the table: | [`name`](crates/name) | content | depends on | …
ROWS = dict(re.findall(r"^\| \[`(\w+)`\]\((?:crates/)?\w+\) \|[^|]*\|([^|]*)\|", MAP, re.MULTILINE))


def folder(crate):
    return OUTSIDE.get(crate, CRATES / crate)


@pytest.fixture(scope="module")
def needed():
    """The crates of the workspace that each crate depends on: for itself, and for its tests."""
    command = ["cargo", "metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"]
    done = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    found = {}
    for package in json.loads(done.stdout)["packages"]:
        crate = package["manifest_path"].split("/")[-2]
        ours = [need for need in package["dependencies"] if need["name"].startswith("fullbore-")]
        names = [(need["name"].removeprefix("fullbore-"), need["kind"]) for need in ours]
        found[crate] = {name for name, kind in names if kind is None}, {name for name, _ in names}
    return found


def test_every_link_of_the_map_leads_somewhere():
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", MAP)
    assert len(links) > 50
    missing = [link for link in links if "://" not in link and not (REPOSITORY / link).exists()]
    assert not missing


def test_every_crate_is_in_the_workspace_and_in_the_table_in_the_same_order():
    assert sorted(ORDER) == sorted([*OUTSIDE, *(path.parent.name for path in CRATES.glob("*/Cargo.toml"))])
    assert list(ROWS) == ORDER


@pytest.mark.parametrize("crate", ORDER)
def test_a_crate_depends_only_on_those_before_it_and_the_table_names_them(crate, needed):
    itself, with_tests = needed[crate]
    assert with_tests <= set(ORDER[: ORDER.index(crate)])
    assert set(re.findall(r"`(\w+)`", ROWS[crate])) == itself


@pytest.mark.parametrize("crate", ORDER)
def test_no_crate_is_too_long_to_be_known(crate):
    lines = sum(len(file.read_text().splitlines()) for file in folder(crate).rglob("*.rs"))
    assert lines <= MOST_LINES


def test_unsafe_is_allowed_in_one_place_only():
    assert 'unsafe_code = "deny"' in (REPOSITORY / "Cargo.toml").read_text()
    for crate in ORDER:
        assert "[lints]\nworkspace = true\n" in (folder(crate) / "Cargo.toml").read_text(), crate
    files = [file for crate in ORDER for file in folder(crate).rglob("*.rs")]
    allowing = [file for file in files if "allow(unsafe_code)" in file.read_text()]
    assert allowing == [CRATES / "linux/src/sys/mod.rs"]


def test_advice_of_errors_is_only_in_the_trait_for_it():
    """A `hint` of a type's own would be shown by no program that knows the trait alone."""
    inside, outside = [], []
    for file in CRATES.rglob("*.rs"):
        block = ""
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if re.match(r"\s*(pub )?(impl|trait)\b", line):
                block = line
            if re.match(r"\s*(pub\S* )?fn hint\(&", line):
                of_trait = re.search(r"\bHint for |\btrait Hint\b", block)
                (inside if of_trait else outside).append(f"{file.relative_to(CRATES)}:{number}")
    assert not outside
    assert len(inside) > 30
