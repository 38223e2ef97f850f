"""The page: each section as HTML, its parts, its style."""
