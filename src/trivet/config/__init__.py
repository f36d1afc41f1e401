"""Settings: frozen models read from TOML, and plugins named in them."""

from trivet.config.plugins import trusted_code

__all__ = ["trusted_code"]
