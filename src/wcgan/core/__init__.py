"""What everything else stands on: files, typed configs, processes, devices, the terminal, pictures."""
