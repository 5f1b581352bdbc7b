"""``foliobox demo``: one conversation from raw files to finished documents, with a crash in the middle."""
