"""The page of requirements says what the tests say."""

from tests.lab.requirements import PAGE, REQUIREMENTS, page, proofs


def test_the_page_of_requirements_is_up_to_date() -> None:
    """Made anew by ``python -m tests.lab.requirements``."""
    assert PAGE.read_text() == page()


def test_tests_name_only_requirements_that_exist() -> None:
    """A typing error would prove nothing."""
    assert sorted(set(proofs()) - set(REQUIREMENTS)) == []
