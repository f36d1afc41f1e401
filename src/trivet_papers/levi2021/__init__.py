"""Levi, Xiao, Wang, Darrell: Rethinking preventing class-collapsing in metric learning (ICCV 2021)."""
