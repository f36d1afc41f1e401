"""The papers: one room for each, with its `claims` (how each is checked, and when it holds) and its `figures`.

| room | paper | `trivet simulate` | theory |
|---|---|---|---|
| `levi2021` | Rethinking preventing class-collapsing in metric learning | `risk` | `trivet.theory.risk` |
| `xuan2020` | Extreme triplet learning | `dynamics` | `trivet.theory.dynamics` |
| `le2018` | Theoretical guarantees of deep embedding losses under label noise | `noise` | `trivet.theory.noise` |
| `xu2024` | Mathematical justification of hard negative mining | `isometry` | `trivet.theory.isometry` |

All four share `checks` (a checked statement), `figure` (a figure with its numbers) and `simulate` (the command).
"""
