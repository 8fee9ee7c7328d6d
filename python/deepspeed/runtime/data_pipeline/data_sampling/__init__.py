"""Orders samples."""
