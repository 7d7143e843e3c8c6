"""How well each attention head follows speech: measured once a model, kept in small files."""
