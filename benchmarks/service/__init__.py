"""The service measured from outside: start-up, from POST to answer, under load."""
