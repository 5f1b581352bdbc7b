"""What tests of every tier share."""
