"""Pages to open in a browser: a playground for generators, and a preference study."""
