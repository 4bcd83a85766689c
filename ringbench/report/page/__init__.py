"""One page of HTML that says all of some runs, and needs nothing beside it: no network, no other file."""
