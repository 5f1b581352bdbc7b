"""What hostile tests share: a view from outside, deliberately weakened launches, attack scripts."""
