"""A module that must not be loaded where somebody forks."""

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
