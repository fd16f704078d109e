raise SystemExit("it was imported")
