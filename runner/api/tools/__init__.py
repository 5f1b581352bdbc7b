"""The surface of tools: what there is, in the shapes that models' interfaces take, and calls on a conversation."""
