"""What goes into the sandbox image and the root file system, and the programs that build them."""
