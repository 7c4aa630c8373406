"""A large job told ahead: what the cluster does until it comes (Arnold, appendix H)."""
