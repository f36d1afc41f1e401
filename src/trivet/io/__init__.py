"""Tables, vectors, texts and images in files: read with checks, written whole or not at all."""
