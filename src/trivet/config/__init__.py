"""Settings: frozen models read from TOML, and plugins named in them."""
