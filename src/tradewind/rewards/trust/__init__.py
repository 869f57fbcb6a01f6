"""When a judge may be believed: statistics, evidence, states, alarms."""
