"""How much of a training's state had to move when its plan changed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """Bytes of a training's state that went from the ranks of one plan to those of the next, without a checkpoint.

    `moved_bytes`: from a rank in another place; `between_hosts_bytes` of them over the network. `kept_bytes`: from the
    rank in the same place. `least_bytes`: that had to move, since the rank in the place had them not. `state_bytes`: of
    a checkpoint.
    """

    moved_bytes: int
    between_hosts_bytes: int
    kept_bytes: int
    least_bytes: int
    state_bytes: int

    def described(self) -> str:
        """One clause."""
        share = self.moved_bytes / self.state_bytes if self.state_bytes else 0.0
        return (
            f"moved {self.moved_bytes / 1e6:.1f} MB, {share:.0%} of the state (least possible "
            f"{self.least_bytes / 1e6:.1f} MB), {self.between_hosts_bytes / 1e6:.1f} MB between hosts; kept "
            f"{self.kept_bytes / 1e6:.1f} MB in place"
        )
