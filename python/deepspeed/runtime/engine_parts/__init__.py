"""The parts of which DeepSpeedEngine is composed."""
