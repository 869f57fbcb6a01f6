"""What agents were seen to try against verifiers, as a catalogue that can be run."""
