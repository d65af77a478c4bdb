"""The page of requirements says what the tests say."""

import re

from tests.lab.requirements import PAGE, REQUIREMENTS, ROOT, proofs

_ROW = re.compile(r"^\| ([A-I]\d+) \|", re.MULTILINE)


def test_the_page_lists_every_requirement_and_only_files_that_show_it() -> None:
    """Made anew by ``python -m tests.lab.requirements``."""
    shown = proofs()
    rows = {match[1]: line for line in PAGE.read_text().splitlines() if (match := _ROW.match(line))}
    assert list(rows) == list(REQUIREMENTS)
    for id, row in rows.items():
        listed = re.findall(r"`(tests/[^`]+)`", row)
        assert set(listed) <= set(shown.get(id, [])), f"{id}: {listed}"
        assert bool(listed) == bool(shown.get(id)), f"{id} is not as the page says"
        assert all((ROOT / path).exists() for path in listed)


def test_tests_name_only_requirements_that_exist() -> None:
    """A typing error would prove nothing."""
    assert sorted(set(proofs()) - set(REQUIREMENTS)) == []
