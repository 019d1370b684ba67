"""What users write, checked: durations, options and settings, and errors that say what is wrong with them."""
