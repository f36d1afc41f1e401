"""Xu et al.: Mathematical justification of hard negative mining via isometric approximation theorem (ICLR 2024)."""
