"""What each command does, one file each: settings and files in, a record and files out."""
