"""Archives as transport: a strict tar reader, and writers of zip and tar.gz. All stream in flat memory."""
