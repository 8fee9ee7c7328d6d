"""Muon."""
