"""Reports on scored files: what each run measured, and how two of them differ. Pure."""
