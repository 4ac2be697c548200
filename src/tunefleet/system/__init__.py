"""What the operating system gives: files, temporary folders, limits, parsers in processes."""
