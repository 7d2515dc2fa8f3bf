"""docs/tutorial/index.md shows what its programs really print: it is played as a reader would."""

from tests.docs.tutorial import BLOCK, PAGE, comparable, played


def test_what_the_tutorial_shows_is_printed():
    page = PAGE.read_text("utf-8")
    assert comparable(played(page)) == comparable(page)


def test_every_block_of_it_is_played():
    page = PAGE.read_text("utf-8")
    assert len(BLOCK.findall(page)) == page.count("\n```python") + page.count("\n```console")
