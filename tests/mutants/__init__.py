"""Wrong programs: each a mistake that somebody would really make, applied in the child only, never a copy of the file."""
