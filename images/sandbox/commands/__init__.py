"""Commands of the sandbox that no package brings; installed as ``foliobox_commands`` beside the Python stack."""
