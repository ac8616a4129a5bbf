"""The table of promises names tests that exist, and the page is what the table says."""

import pytest
from promises import PAGE, SECTIONS, Promise, function_of, page

PROMISES = [p for section in SECTIONS.values() for p in section]


@pytest.mark.parametrize("promise", PROMISES, ids=lambda p: p.text[:40])
def test_each_promise_has_tests(promise: Promise) -> None:
    assert promise.tests
    assert [t for t in promise.tests if function_of(t) is None] == []


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "python test/promises.py writes it"
