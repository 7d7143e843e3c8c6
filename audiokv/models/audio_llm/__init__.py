"""What language models that hear have in common on a live stream."""
