"""The parts of Spark that every job needs: a session, files at any URI, and readable errors."""
