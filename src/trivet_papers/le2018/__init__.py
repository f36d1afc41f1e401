"""Le, Odobez: Theoretical guarantees of deep embedding losses under label noise (2018)."""
