"""What reproduces the tables of papers and is no scheduler of ours."""
