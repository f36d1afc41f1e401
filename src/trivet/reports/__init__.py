"""Records in, one self-contained HTML page out: nothing is measured here and nothing is fetched."""
