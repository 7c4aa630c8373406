"""What if: the same request with changes, and what that changes in the plan."""
