"""What every job needs of Spark itself: a session, files at any URI, and errors in words."""
