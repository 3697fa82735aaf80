"""`make bench`: untildone beside its peers in one table. Not part of the package."""
