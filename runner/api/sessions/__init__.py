"""The sessions surface: routes, bodies, answers and error shapes of its protocol; no policy."""
