"""The papers: one room for each, with its `claims` (how each is checked, and when it holds) and its `figures`.

| room | paper | `trivet simulate` | theory |
|---|---|---|---|
| `levi2021` | Rethinking preventing class-collapsing in metric learning | `risk` | `trivet_papers.levi2021.risk` |
| `xuan2020` | Extreme triplet learning | `dynamics` | `trivet_papers.xuan2020.dynamics` |
| `le2018` | Guarantees of deep embedding losses under label noise | `noise` | `trivet_papers.le2018.theory` |
| `xu2024` | Mathematical justification of hard negative mining | `isometry` | `trivet_papers.xu2024.isometry` |

All four share `checks` (a checked statement), `figure` (a figure with its numbers) and `simulate` (the command).
"""

COMMANDS = {"Read the papers": {name: f"trivet_papers.{name}.command" for name in ("simulate", "reproduce")}}
"""The commands for the command line: heading -> command -> the module that has it."""
