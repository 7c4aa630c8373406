"""What was, or may be, asked of a cluster over time: traces of jobs, their readers, generators. Knows no other room."""
