"""Write the reference pages: `python -m tests.docs`."""

from tests.docs.reference import write_pages

write_pages()
