"""Provides Muon."""
