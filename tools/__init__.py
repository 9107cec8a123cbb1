"""What the book's makers run: `python -m tools.NAME`. Readers need nothing from here."""
