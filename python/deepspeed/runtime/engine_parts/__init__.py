"""Holds the parts that DeepSpeedEngine is composed of."""
